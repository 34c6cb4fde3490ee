import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.function.Consumer;
import java.util.function.LongPredicate;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * Writes record batches with Kafka's own classes, and what Kafka reads out of them: of each case a line "case NAME HEX",
 * then for each batch "batch BASE_OFFSET NEXT_OFFSET MAGIC PRODUCER_ID TRANSACTIONAL CONTROL MAX_TIMESTAMP COUNT SIZE
 * MARKER" and for each of its records "record OFFSET TIMESTAMP KEY VALUE". Bytes are hex, "XX*N" is N times the byte XX,
 * "-" is null. Needs a JDK; run by make_batch_vectors.py.
 */
class BatchVectors {
    static final long TIME = 1_700_000_000_000L;
    static final Header[] HEADERS = {new RecordHeader("h", new byte[] {1}), new RecordHeader("null", (byte[]) null)};

    public static void main(String[] args) {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType type : CompressionType.values()) {
                if (type == CompressionType.ZSTD && magic < 2) continue;
                String name = "v" + magic + "-" + type.name;
                print(name, built(magic, type, TimestampType.CREATE_TIME, BatchVectors::usual));
                print(name + "-gaps", built(magic, type, TimestampType.CREATE_TIME, BatchVectors::gaps));
                // Compressed it is larger than the blocks that snappy and lz4 write.
                int length = type == CompressionType.NONE ? 8_200 : 200_000;
                print(name + "-large", built(magic, type, TimestampType.CREATE_TIME, builder -> large(builder, length)));
                if (magic > 0) {
                    print(name + "-appended", built(magic, type, TimestampType.LOG_APPEND_TIME, BatchVectors::usual));
                }
            }
        }
        print("v2-transactional", transactional());
        print("v2-headers", built((byte) 2, CompressionType.NONE, TimestampType.CREATE_TIME, builder -> {
            builder.append(TIME, bytes("k", 1), bytes("v", 1), HEADERS);
            builder.append(TIME, null, bytes("v", 1), HEADERS);
        }));
        print("v2-commit", marker(ControlRecordType.COMMIT));
        print("v2-abort", marker(ControlRecordType.ABORT));
        print("v2-leader-change", MemoryRecords.withLeaderChangeMessage(
            9, TIME, 3, ByteBuffer.allocate(256), new LeaderChangeMessage().setLeaderId(1)));
        // The cleaner notes in a batch with tombstones when they may go, where the base timestamp was (KIP-534).
        for (CompressionType type : CompressionType.values()) {
            MemoryRecords usual = built((byte) 2, type, TimestampType.CREATE_TIME, BatchVectors::usual);
            print("v2-" + type.name + "-cleaned", cleaned(usual, offset -> offset % 2 == 1));
        }
        print("v2-transactional-cleaned", cleaned(transactional(), offset -> false));
        print("v2-commit-cleaned", cleaned(marker(ControlRecordType.COMMIT), offset -> true));
        print("v2-empty", empty(false));
        print("v2-empty-control", empty(true));
    }

    static MemoryRecords built(byte magic, CompressionType type, TimestampType time, Consumer<MemoryRecordsBuilder> fill) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 16), magic, Compression.of(type).build(), time, 1000, TIME + 9999);
        fill.accept(builder);
        return builder.build();
    }

    static MemoryRecords transactional() {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 12), (byte) 2, Compression.NONE,
            TimestampType.CREATE_TIME, 50, RecordBatch.NO_TIMESTAMP, 4711, (short) 2, 0, true, 5);
        usual(builder);
        return builder.build();
    }

    static MemoryRecords marker(ControlRecordType type) {
        return MemoryRecords.withEndTransactionMarker(77, TIME, 5, 4711, (short) 2, new EndTransactionMarker(type, 6));
    }

    static MemoryRecords cleaned(MemoryRecords records, LongPredicate retained) {
        var filter = new MemoryRecords.RecordFilter(TIME, 86_400_000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, batch.isControlBatch());
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return retained.test(record.offset());
            }
        };
        ByteBuffer buffer = ByteBuffer.allocate(1 << 12);
        records.filterTo(filter, buffer, BufferSupplier.NO_CACHING);
        buffer.flip();
        return MemoryRecords.readableRecords(buffer);
    }

    static MemoryRecords empty(boolean control) {
        ByteBuffer buffer = ByteBuffer.allocate(256);
        DefaultRecordBatch.writeEmptyHeader(
            buffer, (byte) 2, 4711, (short) 2, 0, 20, 31, 5, TimestampType.CREATE_TIME, TIME, control, control);
        buffer.flip();
        return MemoryRecords.readableRecords(buffer);
    }

    static void usual(MemoryRecordsBuilder builder) {
        builder.append(TIME, bytes("k", 5), bytes("v", 7));
        builder.append(TIME + 64, bytes("k", 70), null);
        builder.append(TIME - 3, null, bytes("v", 100));
        builder.append(TIME + 20_000, bytes("", 0), bytes("", 0));
    }

    static void gaps(MemoryRecordsBuilder builder) {
        for (long offset : new long[] {1003, 1064, 1065, 10_000, 3_000_000}) {
            builder.appendWithOffset(offset, TIME + offset, bytes("k", (int) (offset % 90)), bytes("v", 3));
        }
    }

    static void large(MemoryRecordsBuilder builder, int length) {
        builder.append(TIME, bytes("k", 8), bytes("v", length));
        builder.append(TIME + 3_000_000_000L, bytes("k", 64), bytes("v", 64));
    }

    static byte[] bytes(String text, int length) {
        return text.repeat(length).getBytes();
    }

    static void print(String name, MemoryRecords records) {
        byte[] copy = new byte[records.buffer().remaining()];
        records.buffer().duplicate().get(copy);
        System.out.println("case " + name + " " + HexFormat.of().formatHex(copy));
        for (MutableRecordBatch batch : records.batches()) {
            Integer count = batch.countOrNull();
            System.out.printf("batch %d %d %d %d %b %b %d %s %d %s%n", batch.baseOffset(), batch.nextOffset(),
                batch.magic(), batch.producerId(), batch.isTransactional(), batch.isControlBatch(),
                batch.maxTimestamp(), count == null ? "-" : count, batch.sizeInBytes(), controlType(batch));
            for (Record record : batch) {
                System.out.printf("record %d %d %s %s%n", record.offset(), record.timestamp(), hex(record.key()),
                    hex(record.value()));
            }
        }
    }

    static String controlType(RecordBatch batch) {
        if (!batch.isControlBatch() || !batch.iterator().hasNext()) return "-";
        return ControlRecordType.parse(batch.iterator().next().key()).name();
    }

    static String hex(ByteBuffer bytes) {
        if (bytes == null) return "-";
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        for (byte other : copy) {
            if (other != copy[0]) return HexFormat.of().formatHex(copy);
        }
        return HexFormat.of().toHexDigits(copy.length == 0 ? (byte) 0 : copy[0]) + "*" + copy.length;
    }
}
