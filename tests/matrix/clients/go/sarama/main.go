// Sarama. Arguments: bootstrap, topic, group, steps.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"compatibility-matrix/steps"

	"github.com/IBM/sarama"
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

// config uses the version that the fifth argument names, because Sarama's users have to name the broker's version.
func config() *sarama.Config {
	settings := sarama.NewConfig()
	if len(os.Args) > 5 {
		version, err := sarama.ParseKafkaVersion(os.Args[5])
		if err != nil {
			panic(err)
		}
		settings.Version = version
	}
	settings.Producer.Return.Successes = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	settings.Consumer.Group.Session.Timeout = 10 * time.Second
	return settings
}

func produce() error {
	producer, err := sarama.NewSyncProducer(steps.Brokers, config())
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for number := 0; number < steps.Records; number++ {
		value := sarama.StringEncoder(fmt.Sprintf("v%d", number))
		partition := int32(number % steps.Partitions)
		messages = append(messages, &sarama.ProducerMessage{Topic: steps.Topic, Partition: partition, Value: value})
	}
	return producer.SendMessages(messages)
}

// member is a consumer in a group, with its partitions and the values that it has read.
type member struct {
	sarama.ConsumerGroup
	stop     context.CancelFunc
	ended    chan struct{}
	mutex    sync.Mutex
	assigned int
	values   []string
	err      error
}

func join(group string) (*member, error) {
	consumer, err := sarama.NewConsumerGroup(steps.Brokers, group, config())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	joined := &member{ConsumerGroup: consumer, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(joined.ended)
		for ctx.Err() == nil {
			if err := consumer.Consume(ctx, []string{steps.Topic}, joined); err != nil {
				joined.mutex.Lock()
				joined.err = err
				joined.mutex.Unlock()
				time.Sleep(steps.Poll)
			}
		}
	}()
	return joined, nil
}

func (m *member) leave() {
	m.stop()
	<-m.ended
	m.Close()
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	return m.set(len(session.Claims()[steps.Topic]))
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return m.set(0) }

func (m *member) set(assigned int) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.assigned = assigned
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		m.mutex.Lock()
		m.values = append(m.values, string(message.Value))
		full := len(m.values) >= steps.Records
		m.mutex.Unlock()
		if full {
			session.Commit()
		}
	}
	return nil
}

func (m *member) holds(count int) bool {
	time.Sleep(steps.Poll)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.assigned == count
}

func (m *member) reason(err error) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if err != nil && m.err != nil {
		return fmt.Errorf("%w; the last error is: %w", err, m.err)
	}
	return err
}

func committed(group string) (int64, error) {
	client, err := sarama.NewClusterAdmin(steps.Brokers, config())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	reply, err := client.ListConsumerGroupOffsets(group, map[string][]int32{steps.Topic: {0, 1, 2, 3}})
	if err != nil {
		return 0, err
	}
	var total int64
	for partition := int32(0); partition < steps.Partitions; partition++ {
		block := reply.GetBlock(steps.Topic, partition)
		if block == nil {
			return 0, fmt.Errorf("partition %d is missing in the offsets", partition)
		}
		if block.Err != sarama.ErrNoError {
			return 0, block.Err
		}
		total += max(block.Offset, 0)
	}
	return total, nil
}

func consume() error {
	consumer, err := join(steps.Group)
	if err != nil {
		return err
	}
	err = steps.Until("all records", func() bool {
		time.Sleep(steps.Poll)
		consumer.mutex.Lock()
		defer consumer.mutex.Unlock()
		return len(consumer.values) >= steps.Records
	})
	consumer.leave()
	distinct := map[string]bool{}
	for _, each := range consumer.values {
		distinct[each] = true
	}
	if err := steps.First(consumer.reason(err),
		steps.Check(len(distinct) == steps.Records && len(consumer.values) == steps.Records, "%d records, %d distinct",
			len(consumer.values), len(distinct))); err != nil {
		return err
	}
	total, err := committed(steps.Group)
	return steps.First(err, steps.Check(total == steps.Records, "committed offsets: %d", total))
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
		return first.reason(err)
	}
	second, err := join(shared)
	if err != nil {
		return err
	}
	err = steps.Until("the members share the partitions", func() bool { return first.holds(half) && second.holds(half) })
	second.leave()
	return steps.First(err, steps.Until("all partitions come back", all))
}

func transactions() error {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.Transaction.ID = steps.Group + "-x"
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(steps.Brokers, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := steps.First(inTransaction(producer, "aborted", 9), producer.AbortTxn()); err != nil {
		return fmt.Errorf("the aborted transaction: %w", err)
	}
	if err := steps.First(inTransaction(producer, "committed", 5), producer.CommitTxn()); err != nil {
		return fmt.Errorf("the committed transaction: %w", err)
	}
	settings = config()
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(steps.Brokers, settings)
	if err != nil {
		return err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(steps.Topic+"-t", 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer reader.Close()
	var values []string
	err = steps.Until("the committed records", func() bool {
		select {
		case message := <-reader.Messages():
			values = append(values, string(message.Value))
		case <-time.After(steps.Poll):
		}
		return len(values) >= 3
	})
	total, problem := committed(steps.Group + "-t")
	return steps.First(err, problem,
		steps.Check(fmt.Sprint(values) == "[committed0 committed1 committed2]", "read %v", values),
		steps.Check(total == 5, "the offset of the transaction is %d", total))
}

func inTransaction(producer sarama.SyncProducer, value string, offset int64) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for number := 0; number < 3; number++ {
		content := sarama.StringEncoder(fmt.Sprint(value, number))
		message := &sarama.ProducerMessage{Topic: steps.Topic + "-t", Partition: 0, Value: content}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{steps.Topic: {{Partition: 0, Offset: offset}}}
	return producer.AddOffsetsToTxn(offsets, steps.Group+"-t")
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
		return joined.reason(err)
	}
	client, err := sarama.NewClusterAdmin(steps.Brokers, config())
	if err != nil {
		return err
	}
	defer client.Close()
	topics, err := client.ListTopics()
	if err != nil {
		return err
	}
	groups, err := client.ListConsumerGroups()
	if err != nil {
		return err
	}
	found, err := client.DescribeConsumerGroups([]string{described})
	if err != nil {
		return err
	}
	_, hasTopic := topics[steps.Topic]
	_, hasGroup := groups[described]
	if err := steps.First(
		steps.Check(hasTopic, "no topic"),
		steps.Check(hasGroup, "the group is not listed"),
		steps.Check(len(found) == 1 && len(found[0].Members) == 1, "the description is %v", found)); err != nil {
		return err
	}
	for _, each := range found[0].Members {
		assignment, err := each.GetMemberAssignment()
		if err != nil {
			return err
		}
		count := len(assignment.Topics[steps.Topic])
		if err := steps.Check(count == steps.Partitions, "%d partitions are assigned", count); err != nil {
			return err
		}
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
	settings := config()
	settings.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumerGroup(steps.Brokers, steps.Group, settings)
	if err != nil {
		return err
	}
	go func() {
		for err := range consumer.Errors() {
			steps.Trouble(number, err)
		}
	}()
	for {
		if err := consumer.Consume(context.Background(), []string{steps.Topic}, staying(number)); err != nil {
			steps.Trouble(number, err)
			time.Sleep(steps.Poll)
		}
	}
}

// staying is the handler of a member that stays in its group.
type staying int

func (staying) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (staying) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (number staying) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	committed := time.Now()
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			steps.Progress(int(number), message.Partition)
			session.MarkMessage(message, "")
			if time.Since(committed) > steps.CommitEvery {
				session.Commit()
				committed = time.Now()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}
