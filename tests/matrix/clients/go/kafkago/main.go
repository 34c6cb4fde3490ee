// kafka-go. Arguments: bootstrap, topic, group, steps.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"compatibility-matrix/steps"

	"github.com/segmentio/kafka-go"
)

func main() {
	steps.Run(map[string]func() error{
		"produce":   produce,
		"consume":   consume,
		"rebalance": rebalance,
		"transactions": func() error {
			return steps.Unsupported("its Writer has no transactions")
		},
		"admin": admin,
	})
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), steps.Wait)
}

func client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(steps.Bootstrap), Timeout: steps.Wait}
}

func produce() error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(steps.Bootstrap), Topic: steps.Topic, RequiredAcks: kafka.RequireAll,
		Balancer: &kafka.RoundRobin{}, BatchTimeout: 10 * time.Millisecond,
	}
	defer writer.Close()
	ctx, cancel := limited()
	defer cancel()
	var messages []kafka.Message
	for number := 0; number < steps.Records; number++ {
		messages = append(messages, kafka.Message{Value: []byte(fmt.Sprintf("v%d", number))})
	}
	return writer.WriteMessages(ctx, messages...)
}

func committed(group string) (int64, error) {
	ctx, cancel := limited()
	defer cancel()
	reply, err := client().OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{steps.Topic: {0, 1, 2, 3}}})
	if err != nil {
		return 0, err
	}
	var total int64
	for _, each := range reply.Topics[steps.Topic] {
		if each.Error != nil {
			return 0, each.Error
		}
		total += max(each.CommittedOffset, 0)
	}
	return total, reply.Error
}

func consume() error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{steps.Bootstrap}, GroupID: steps.Group, Topic: steps.Topic, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 300 * time.Millisecond, SessionTimeout: 10 * time.Second, MaxWait: time.Second,
	})
	defer reader.Close()
	ctx, cancel := limited()
	defer cancel()
	values := map[string]bool{}
	var last []kafka.Message
	for count := 0; count < steps.Records; count++ {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		values[string(message.Value)] = true
		last = append(last, message)
	}
	if err := steps.Check(len(values) == steps.Records, "%d distinct records", len(values)); err != nil {
		return err
	}
	if err := reader.CommitMessages(ctx, last...); err != nil {
		return err
	}
	total, err := committed(steps.Group)
	return steps.First(err, steps.Check(total == steps.Records, "committed offsets: %d", total))
}

// member is a consumer in a group that counts its partitions.
type member struct {
	group    *kafka.ConsumerGroup
	stop     context.CancelFunc
	ended    chan struct{}
	mutex    sync.Mutex
	assigned int
}

func join(name string) (*member, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: name, Brokers: []string{steps.Bootstrap}, Topics: []string{steps.Topic}, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 300 * time.Millisecond, SessionTimeout: 10 * time.Second, JoinGroupBackoff: steps.Poll,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	joined := &member{group: group, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(joined.ended)
		for ctx.Err() == nil {
			generation, err := group.Next(ctx)
			if err != nil {
				continue
			}
			joined.set(len(generation.Assignments[steps.Topic]))
			generation.Start(func(ended context.Context) {
				<-ended.Done()
				joined.set(0)
			})
		}
	}()
	return joined, nil
}

func (m *member) set(assigned int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.assigned = assigned
}

func (m *member) holds(count int) bool {
	time.Sleep(steps.Poll)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.assigned == count
}

func (m *member) leave() {
	m.stop()
	<-m.ended
	m.group.Close()
}

func rebalance() error {
	shared, half := steps.Group+"-r", steps.Partitions/2
	first, err := join(shared)
	if err != nil {
		return err
	}
	defer first.leave()
	all := func() bool { return first.holds(steps.Partitions) }
	if err := steps.Until("the first member has all partitions", all); err != nil {
		return err
	}
	second, err := join(shared)
	if err != nil {
		return err
	}
	err = steps.Until("the members share the partitions", func() bool { return first.holds(half) && second.holds(half) })
	second.leave()
	return steps.First(err, steps.Until("all partitions come back", all))
}

func admin() error {
	described := steps.Group + "-a"
	joined, err := join(described)
	if err != nil {
		return err
	}
	defer joined.leave()
	all := func() bool { return joined.holds(steps.Partitions) }
	if err := steps.Until("the member has all partitions", all); err != nil {
		return err
	}
	ctx, cancel := limited()
	defer cancel()
	metadata, err := client().Metadata(ctx, &kafka.MetadataRequest{Topics: []string{steps.Topic}})
	if err != nil {
		return err
	}
	listed, err := client().ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return err
	}
	found, err := client().DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{described}})
	if err != nil {
		return err
	}
	hasGroup := false
	for _, each := range listed.Groups {
		hasGroup = hasGroup || each.GroupID == described
	}
	if err := steps.First(listed.Error,
		steps.Check(len(metadata.Topics) == 1 && len(metadata.Topics[0].Partitions) == steps.Partitions, "no topic"),
		steps.Check(hasGroup, "the group is not listed"),
		steps.Check(len(found.Groups) == 1 && len(found.Groups[0].Members) == 1, "the description is %v", found)); err != nil {
		return err
	}
	assigned := found.Groups[0].Members[0].MemberAssignments.Topics
	if err := steps.Check(len(assigned) == 1 && len(assigned[0].Partitions) == steps.Partitions, "the assignment is %v",
		assigned); err != nil {
		return err
	}
	total, err := committed(steps.Group)
	return steps.First(err, steps.Check(total == steps.Records, "committed offsets: %d", total))
}
