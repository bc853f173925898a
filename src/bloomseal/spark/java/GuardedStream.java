package bloomseal.spark;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;

/** The protocol of Spark's streaming file sink, but that no batch is begun which would leave plaintext where sealed files are wanted. */
public final class GuardedStream extends ManifestFileCommitProtocol {
  private final String table;

  public GuardedStream(String job, String table) {
    super(job, table);
    this.table = table;
  }

  @Override
  public void setupJob(JobContext context) {
    try {
      Guard.check(context.getConfiguration(), new Path(table), true);
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
    super.setupJob(context);
  }
}
