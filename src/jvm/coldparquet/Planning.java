package coldparquet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Asks the Python source, always in the process in which Spark lets it plan: also for the columns of a table, for which
 * Spark has another process. So a query finds the table open that its load has opened, and modules are imported once.
 */
final class Planning {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Planning() {}

    /** Let Python plan, once for all that is made of this source; return the attributes of the first partition. */
    static Map<?, ?> plan(PythonDataSourceV2 source, StructType schema, CaseInsensitiveStringMap options) {
        try {
            PythonDataSourceCreationResult told = new PythonDataSourceCreationResult(pickled(json(options)), schema);
            PythonDataSourceReadInfo plan = source.source().createReadInfoInPython(told, schema, false);
            source.setReadInfo(plan);
            return (Map<?, ?>) new Unpickler().loads(plan.partitions().head());
        } catch (LinkageError error) {
            throw DefaultSource.unknownSpark(error);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    static String json(Object value) {
        try {
            return JSON.writeValueAsString(value);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The call coldparquet.spark.source.made_by_jar(text), as Python's pickle has it. */
    private static byte[] pickled(String text) {
        byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream pickle = new ByteArrayOutputStream();
        pickle.writeBytes("ccoldparquet.spark.source\nmade_by_jar\nX".getBytes(StandardCharsets.US_ASCII));
        pickle.writeBytes(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(utf8.length).array());
        pickle.writeBytes(utf8);
        pickle.writeBytes(new byte[] {(byte) 0x85, 'R', '.'}); // a tuple of one, the call, the end
        return pickle.toByteArray();
    }
}
