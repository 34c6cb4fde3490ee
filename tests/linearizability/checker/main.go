// Checks histories of committed offsets for linearizability, with Porcupine.
//
// Usage: checker [-seconds 60] [-pictures folder] history.jsonl...
//
// Each line is one operation. The fields are described in tests/linearizability/history.py. The result is one JSON
// object on the standard output. The exit status is 0 unless the files cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Key    string `json:"key"`
	Client string `json:"client"`
	Kind   string `json:"kind"`
	Value  int64  `json:"value"`
	Txn    int64  `json:"txn"`
	From   int64  `json:"from"`
	To     *int64 `json:"to"`
}

type verdict struct {
	Key        string `json:"key"`
	Operations int    `json:"operations"`
	Longest    int    `json:"longest"`
	First      string `json:"first"`
	Clock      int64  `json:"clock"`
	Picture    string `json:"picture,omitempty"`
}

type report struct {
	Keys       int       `json:"keys"`
	Operations int       `json:"operations"`
	Unknown    int       `json:"unknown"`
	Violations []verdict `json:"violations"`
	Undecided  []verdict `json:"undecided"`
}

func main() {
	seconds := flag.Float64("seconds", 60, "maximum time for one key")
	pictures := flag.String("pictures", "", "folder for a picture of each violation")
	flag.Parse()
	histories, err := read(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found := check(histories, time.Duration(*seconds*float64(time.Second)), *pictures)
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}

// read returns the operations of all files by key.
func read(paths []string) (map[string][]porcupine.Operation, error) {
	histories := map[string][]porcupine.Operation{}
	clients := map[string]int{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var each line
			if err := json.Unmarshal(lines.Bytes(), &each); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			id, known := clients[each.Client]
			if !known {
				id = len(clients)
				clients[each.Client] = id
			}
			operation := porcupine.Operation{
				ClientId: id, Input: each, Call: each.From, Output: each.Value, Return: math.MaxInt64,
			}
			if each.To != nil {
				operation.Return = *each.To
			}
			histories[each.Key] = append(histories[each.Key], operation)
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	return histories, nil
}

// check decides about each key on its own, two keys at a time.
func check(histories map[string][]porcupine.Operation, limit time.Duration, pictures string) report {
	found := report{Keys: len(histories), Violations: []verdict{}, Undecided: []verdict{}}
	keys := make(chan string)
	var lock sync.Mutex
	var workers sync.WaitGroup
	for range 2 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for key := range keys {
				operations := histories[key]
				result := porcupine.CheckOperationsTimeout(model, operations, limit)
				var info porcupine.LinearizationInfo
				if result == porcupine.Illegal { // The longest linearizations take much more time and memory.
					_, info = porcupine.CheckOperationsVerbose(model, operations, limit)
				}
				lock.Lock()
				if result == porcupine.Illegal {
					found.Violations = append(found.Violations, describe(key, operations, info, pictures))
				} else if result == porcupine.Unknown {
					found.Undecided = append(found.Undecided, verdict{Key: key, Operations: len(operations)})
				}
				lock.Unlock()
			}
		}()
	}
	for key, operations := range histories {
		found.Operations += len(operations)
		for _, operation := range operations {
			if operation.Return == math.MaxInt64 {
				found.Unknown++
			}
		}
		keys <- key
	}
	close(keys)
	workers.Wait()
	sort.Slice(found.Violations, func(a, b int) bool { return found.Violations[a].Key < found.Violations[b].Key })
	return found
}

// describe names the first operation, by its return, that no longest linearization contains.
func describe(key string, operations []porcupine.Operation, info porcupine.LinearizationInfo, pictures string) verdict {
	result := verdict{Key: key, Operations: len(operations)}
	var longest []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	result.Longest = len(longest)
	contained := map[line]bool{}
	for _, operation := range longest {
		contained[operation.Input.(line)] = true
	}
	first := int64(math.MaxInt64)
	for _, operation := range operations {
		if !contained[operation.Input.(line)] && operation.Return < first {
			first = operation.Return
			result.First = model.DescribeOperation(operation.Input, operation.Output)
			result.Clock = operation.Call
		}
	}
	if pictures != "" {
		path := filepath.Join(pictures, fmt.Sprintf("violation-%d.html", result.Clock))
		if porcupine.VisualizePath(model, info, path) == nil {
			result.Picture = path
		}
	}
	return result
}
