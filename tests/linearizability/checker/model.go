package main

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

const none = -1

// pending is an offset that a transaction has staged. Kafka drops it at the transaction's end if the log has a later
// commit of the same partition: the later commit stays.
type pending struct {
	txn, value int64
	superseded bool
}

// state is comparable: the pending offsets, in the order of the log, are encoded in a string.
type state struct {
	value   int64
	pending string
}

func (s state) decoded() []pending {
	var all []pending
	for _, text := range strings.Fields(s.pending) {
		var each pending
		fmt.Sscanf(text, "%d:%d:%t", &each.txn, &each.value, &each.superseded)
		all = append(all, each)
	}
	return all
}

func encoded(value int64, all []pending) state {
	var text strings.Builder
	for _, each := range all {
		fmt.Fprintf(&text, "%d:%d:%t ", each.txn, each.value, each.superseded)
	}
	return state{value, text.String()}
}

func superseded(all []pending) []pending {
	for number := range all {
		all[number].superseded = true
	}
	return all
}

// end removes a transaction's pending offset. A commit makes the offset the current one.
func (s state) end(txn int64, commit bool) state {
	all := s.decoded()
	for number, each := range all {
		if each.txn != txn {
			continue
		}
		rest := append([]pending{}, all[number+1:]...)
		earlier := all[:number]
		if commit && !each.superseded {
			return encoded(each.value, append(superseded(earlier), rest...))
		}
		return encoded(s.value, append(earlier, rest...))
	}
	return s
}

// step returns whether an operation with this result is possible in a state, and the next state.
func step(before any, input any, output any) (bool, any) {
	now, operation := before.(state), input.(line)
	switch operation.Kind {
	case "read":
		return output.(int64) == now.value, now
	case "stable_read":
		return output.(int64) == now.value && now.pending == "", now
	case "commit", "commit_again":
		if now.pending == "" {
			return true, state{value: operation.Value}
		}
		return true, encoded(operation.Value, superseded(now.decoded()))
	case "delete":
		return true, state{value: none}
	case "stage":
		return true, encoded(now.value, append(now.decoded(), pending{txn: operation.Txn, value: operation.Value}))
	case "end_commit":
		return true, now.end(operation.Txn, true)
	case "end_abort":
		return true, now.end(operation.Txn, false)
	}
	panic("an operation of an unknown kind: " + operation.Kind)
}

var model = porcupine.Model{
	Init:  func() any { return state{value: none} },
	Step:  step,
	Equal: func(one, other any) bool { return one.(state) == other.(state) },
	DescribeOperation: func(input any, output any) string {
		operation := input.(line)
		return fmt.Sprintf("%s %d txn %d by %s", operation.Kind, operation.Value, operation.Txn, operation.Client)
	},
	DescribeState: func(now any) string { return fmt.Sprintf("%+v", now.(state)) },
}
