// Package steps runs the named steps one after the other, and prints one line of JSON per step.
package steps

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	Records    = 100
	Partitions = 4
	Wait       = 30 * time.Second
	Poll       = 100 * time.Millisecond
)

// Unsupported is the error of a step that the client has no feature for.
type Unsupported string

func (u Unsupported) Error() string { return "not supported by the client: " + string(u) }

// Arguments of the command line: bootstrap, topic, group, steps.
var Bootstrap, Topic, Group = os.Args[1], os.Args[2], os.Args[3]

type report struct {
	Step        string  `json:"step"`
	Ok          bool    `json:"ok"`
	Error       *string `json:"error"`
	Unsupported bool    `json:"unsupported"`
}

// Brokers are the bootstrap addresses, which are separated by commas.
var Brokers = strings.Split(Bootstrap, ",")

// CommitEvery is the time between two commits of a member that stays in its group.
const CommitEvery = 500 * time.Millisecond

var output sync.Mutex

// Progress reports that a member of a group has read records of some partitions.
func Progress(member int, partitions ...int32) {
	event(map[string]any{"member": member, "partitions": partitions})
}

// Trouble reports an error that a member of a group has shown.
func Trouble(member int, err error) {
	event(map[string]any{"member": member, "error": err.Error()})
}

func event(fields map[string]any) {
	fields["at"] = float64(time.Now().UnixMilli()) / 1000
	line, _ := json.Marshal(fields)
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// Run runs the steps of the command line and ends the process.
func Run(known map[string]func() error) {
	for _, name := range strings.Split(os.Args[4], ",") {
		told := report{Step: name, Ok: true}
		if err := known[name](); err != nil {
			text := err.Error()
			_, told.Unsupported = err.(Unsupported)
			told.Ok, told.Error = false, &text
		}
		line, _ := json.Marshal(told)
		fmt.Println(string(line))
	}
	os.Exit(0)
}

// Until calls the condition until it holds. The condition itself waits, for instance by polling a consumer.
func Until(text string, holds func() bool) error {
	for deadline := time.Now().Add(Wait); !holds(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out: %s", text)
		}
	}
	return nil
}

// Check returns an error with the text unless the condition holds.
func Check(holds bool, text string, values ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(text, values...)
}

// First returns the first error that is not nil.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
