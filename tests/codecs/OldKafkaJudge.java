import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;

/**
 * Reads bodies with the schemas of Kafka before 2.4. Of each line "KEY VERSION (request|response) HEX" one line on the
 * standard output: "unknown" where this Kafka has no such version, "refused REASON", or the body written again in hex
 * behind an apostrophe. Needs a JDK; run by kafka_judge.py.
 */
class OldKafkaJudge {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var verdicts = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            Schema schema = schema(Short.parseShort(words[0]), Short.parseShort(words[1]), words[2].equals("request"));
            verdicts.append(schema == null ? "unknown" : judged(schema, HEX.parseHex(words[3]))).append('\n');
        }
        System.out.print(verdicts);
    }

    private static String judged(Schema schema, byte[] body) {
        try {
            Struct read = (Struct) schema.read(ByteBuffer.wrap(body));
            ByteBuffer written = ByteBuffer.allocate(read.sizeOf());
            read.writeTo(written);
            return "'" + HEX.formatHex(written.array());
        } catch (RuntimeException refusal) {
            return "refused " + refusal.toString().replaceAll("\\s+", " ");
        }
    }

    /** The schema of a message; null where there is none. Up to Kafka 0.11 a table has them, then each API. */
    private static Schema schema(short key, short version, boolean request) throws ReflectiveOperationException {
        try {
            String table = request ? "REQUESTS" : "RESPONSES";
            Class<?> tables = Class.forName("org.apache.kafka.common.protocol.Protocol");
            Schema[][] schemas = (Schema[][]) tables.getField(table).get(null);
            boolean known = key < schemas.length && schemas[key] != null && version < schemas[key].length;
            return known ? schemas[key][version] : null;
        } catch (NoSuchFieldException later) {
            Class<?> apis = Class.forName("org.apache.kafka.common.protocol.ApiKeys");
            try {
                Object api = apis.getMethod("forId", int.class).invoke(null, (int) key);
                String schema = request ? "requestSchema" : "responseSchema";
                return (Schema) apis.getMethod(schema, short.class).invoke(api, version);
            } catch (InvocationTargetException unknown) {
                return null;
            }
        }
    }
}
