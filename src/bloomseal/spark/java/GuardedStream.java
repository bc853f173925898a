package bloomseal.spark;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set;

/**
 * The protocol of Spark's streaming file sink, but that no batch is begun which would leave plaintext where sealed files are wanted, and
 * that files are signed, where the policy wants it, before the sink's log names them.
 */
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
      SignedTail.needSigner(context.getConfiguration(), new Path(table));
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
    super.setupJob(context);
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    TablePlaces.sign(context.getConfiguration());
    SignedTail.forget(context.getConfiguration());
    super.setupTask(context);
  }

  @Override
  public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
    Set tails = SignedTail.written(context.getConfiguration());
    return SignedTail.told(super.commitTask(context).obj(), tails);
  }

  @Override
  public void onTaskCommit(FileCommitProtocol.TaskCommitMessage task) {
    super.onTaskCommit(SignedTail.plain(task));
  }

  @Override
  public void commitJob(JobContext context, Seq told) {
    Seq tasks = SignedTail.plain(told);
    Set tails = SignedTail.tails(told);
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        for (Iterator files = ((Seq) ((FileCommitProtocol.TaskCommitMessage) each.next()).obj()).iterator(); files.hasNext();) {
          Path file = new Path(URI.create((String) ((Product) files.next()).productElement(0))); // a SinkFileStatus
          SignedTail.sign(context.getConfiguration(), file, file, tails);
        }
      }
    } catch (IOException e) {
      throw new IllegalStateException(e.toString(), e);
    }
    super.commitJob(context, tasks);
  }
}
