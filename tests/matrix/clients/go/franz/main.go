// franz-go. Arguments: bootstrap, topic, group, steps.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"compatibility-matrix/steps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	steps.Run(map[string]func() error{
		"produce":      produce,
		"consume":      consume,
		"rebalance":    rebalance,
		"transactions": transactions,
		"admin":        admin,
		"stay":         stay,
	})
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), steps.Wait)
}

func produce() error {
	client, err := kgo.NewClient(kgo.SeedBrokers(steps.Brokers...), kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	var records []*kgo.Record
	for number := 0; number < steps.Records; number++ {
		value := []byte(fmt.Sprintf("v%d", number))
		records = append(records, &kgo.Record{Topic: steps.Topic, Partition: int32(number % steps.Partitions), Value: value})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// member is a consumer in a group that counts its partitions.
type member struct {
	*kgo.Client
	mutex    sync.Mutex
	assigned int
}

func join(group string, more ...kgo.Opt) (*member, error) {
	joined := &member{}
	options := []kgo.Opt{
		kgo.SeedBrokers(steps.Brokers...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(steps.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.SessionTimeout(10 * time.Second),
		kgo.OnPartitionsAssigned(joined.change(1)),
		kgo.OnPartitionsRevoked(joined.change(-1)),
		kgo.OnPartitionsLost(joined.change(-1)),
	}
	client, err := kgo.NewClient(append(options, more...)...)
	joined.Client = client
	return joined, err
}

func (m *member) change(by int) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		m.assigned += by * len(partitions[steps.Topic])
	}
}

func (m *member) polled() int {
	ctx, cancel := context.WithTimeout(context.Background(), steps.Poll)
	defer cancel()
	m.PollFetches(ctx)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.assigned
}

func committed(group string) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(steps.Brokers...))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	offsets, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	var total int64
	offsets.Each(func(each kadm.OffsetResponse) { total += each.At })
	return total, steps.First(err, offsets.Error())
}

func consume() error {
	consumer, err := join(steps.Group)
	if err != nil {
		return err
	}
	defer consumer.Close()
	count, values := 0, map[string]bool{}
	err = steps.Until("all records", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), steps.Poll)
		defer cancel()
		consumer.PollFetches(ctx).EachRecord(func(record *kgo.Record) { count++; values[string(record.Value)] = true })
		return len(values) == steps.Records
	})
	if err != nil {
		return err
	}
	ctx, cancel := limited()
	defer cancel()
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	var total int64
	for _, each := range consumer.CommittedOffsets()[steps.Topic] {
		total += each.Offset
	}
	return steps.First(
		steps.Check(count == steps.Records, "%d records", count),
		steps.Check(total == steps.Records, "committed offsets: %d", total))
}

func rebalance() error {
	shared, half := steps.Group+"-r", steps.Partitions/2
	first, err := join(shared)
	if err != nil {
		return err
	}
	defer first.Close()
	all := func() bool { return first.polled() == steps.Partitions }
	if err := steps.Until("the first member has all partitions", all); err != nil {
		return err
	}
	second, err := join(shared)
	if err != nil {
		return err
	}
	err = steps.Until("the members share the partitions", func() bool {
		one, other := first.polled(), second.polled()
		return one == half && other == half
	})
	second.Close()
	return steps.First(err, steps.Until("all partitions come back", all))
}

func transactions() error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(steps.Brokers...), kgo.TransactionalID(steps.Group+"-x"), kgo.ConsumerGroup(steps.Group+"-t"),
		kgo.ConsumeTopics(steps.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer session.Close()
	if _, err := inTransaction(session, "aborted", kgo.TryAbort); err != nil {
		return fmt.Errorf("the aborted transaction: %w", err)
	}
	consumed, err := inTransaction(session, "committed", kgo.TryCommit)
	if err != nil {
		return fmt.Errorf("the committed transaction: %w", err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(steps.Brokers...), kgo.ConsumeTopics(steps.Topic+"-t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer reader.Close()
	var values []string
	err = steps.Until("the committed records", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), steps.Poll)
		defer cancel()
		reader.PollFetches(ctx).EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
		return len(values) >= 3
	})
	total, problem := committed(steps.Group + "-t")
	return steps.First(err, problem,
		steps.Check(fmt.Sprint(values) == "[committed0 committed1 committed2]", "read %v", values),
		steps.Check(total == consumed, "the offsets of the transaction: %d of %d", total, consumed))
}

// inTransaction consumes records and produces three. The offsets of the records are part of the transaction.
func inTransaction(session *kgo.GroupTransactSession, value string, end kgo.TransactionEndTry) (int64, error) {
	ctx, cancel := limited()
	defer cancel()
	if err := session.Begin(); err != nil {
		return 0, err
	}
	var consumed int64
	err := steps.Until("records", func() bool {
		short, stop := context.WithTimeout(ctx, steps.Poll)
		defer stop()
		consumed += int64(session.PollFetches(short).NumRecords())
		return consumed > 0
	})
	if err != nil {
		return 0, err
	}
	for number := 0; number < 3; number++ {
		record := &kgo.Record{Topic: steps.Topic + "-t", Value: []byte(fmt.Sprint(value, number))}
		if err := session.ProduceSync(ctx, record).FirstErr(); err != nil {
			return 0, err
		}
	}
	done, err := session.End(ctx, end)
	return consumed, steps.First(err, steps.Check(done == bool(end), "the transaction was not ended as wanted"))
}

func admin() error {
	described := steps.Group + "-a"
	joined, err := join(described)
	if err != nil {
		return err
	}
	defer joined.Close()
	all := func() bool { return joined.polled() == steps.Partitions }
	if err := steps.Until("the member has all partitions", all); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(steps.Brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	asking := kadm.NewClient(client)
	ctx, cancel := limited()
	defer cancel()
	topics, err := asking.ListTopics(ctx)
	if err != nil {
		return err
	}
	groups, err := asking.ListGroups(ctx)
	if err != nil {
		return err
	}
	found, err := asking.DescribeGroups(ctx, described)
	if err != nil {
		return err
	}
	group := found[described]
	if err := steps.First(
		group.Err,
		steps.Check(topics.Has(steps.Topic), "no topic"),
		steps.Check(groups[described].Group == described, "the group is not listed"),
		steps.Check(len(group.Members) == 1, "%d members", len(group.Members)),
		steps.Check(len(group.AssignedPartitions()[steps.Topic]) == steps.Partitions, "the assignment is %v",
			group.AssignedPartitions())); err != nil {
		return err
	}
	total, err := committed(steps.Group)
	return steps.First(err, steps.Check(total == steps.Records, "committed offsets: %d", total))
}

// stay runs two members of the group, which consume and commit until the process is killed.
func stay() error {
	go stayAs(1)
	return stayAs(0)
}

func stayAs(number int) error {
	consumer, err := join(steps.Group)
	if err != nil {
		return err
	}
	for committed := time.Now(); ; {
		ctx, cancel := context.WithTimeout(context.Background(), steps.Poll)
		fetches := consumer.PollFetches(ctx)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				steps.Trouble(number, err)
			}
		})
		fetches.EachPartition(func(partition kgo.FetchTopicPartition) {
			if len(partition.Records) > 0 {
				steps.Progress(number, partition.Partition)
			}
		})
		if time.Since(committed) > steps.CommitEvery {
			ctx, cancel := limited()
			if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
				steps.Trouble(number, err)
			}
			cancel()
			committed = time.Now()
		}
	}
}
