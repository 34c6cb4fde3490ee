import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/**
 * Writes names as Kafka's default principal builder does: of each line, a name in DER in hex, the text in UTF-8 in hex.
 * Needs a JDK; run by test_subject.py.
 */
class PrincipalNames {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = lines.readLine()) != null; ) {
            String name = new X500Principal(HexFormat.of().parseHex(line)).getName();
            System.out.println(HexFormat.of().formatHex(name.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
