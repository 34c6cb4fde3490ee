import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.stream.Collectors;

/**
 * Reads bytes as Kafka reads strings: of each line in hex, the code points in hex between full stops.
 * Needs a JDK; run by make_string_vectors.py.
 */
class StringVectors {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String read = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8);
            System.out.println(read.codePoints().mapToObj(Integer::toHexString).collect(Collectors.joining(".")));
            System.out.flush();
        }
    }
}
