package bloomseal.spark;

import java.io.IOException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.parquet.hadoop.ParquetOutputCommitter;

/**
 * Spark's committer of Parquet files, with a temporary folder of each write's own.
 *
 * By itself all writes to a table share one, which each removes when it ends: of two at the same time the earlier one
 * takes away what tasks of the other have committed, and that one ends well without these rows. Writers by another
 * committer still remove all of it: whoever finds his own folder gone says so, and commits nothing.
 */
public final class OwnFolder extends ParquetOutputCommitter {
  private static final String WRITE = "spark.sql.sources.writeJobUUID";
  private static final String ATTEMPT = "mapreduce.job.application.attempt.id";
  /** Where the tasks' attempts are, which no commit takes for one of them. */
  private static final String BEGAN = "_temporary/_began";
  /** After so many milliseconds without a commit the folder of another write is one of a driver that was killed. */
  private static final long FORGOTTEN = 7L * 24 * 3600 * 1000;

  public OwnFolder(Path output, TaskAttemptContext context) throws IOException {
    super(output, (TaskAttemptContext) numbered(context));
  }

  /** Hadoop calls the folder by the job's attempt, of which Spark says nothing. */
  private static JobContext numbered(JobContext context) {
    Configuration configuration = context.getConfiguration();
    String write = configuration.get(WRITE);
    if (write != null) {
      configuration.setInt(ATTEMPT, UUID.fromString(write).hashCode() & Integer.MAX_VALUE);
    }
    return context;
  }

  @Override
  public void setupJob(JobContext context) throws IOException {
    super.setupJob(numbered(context));
    Path began = new Path(getJobAttemptPath(context), BEGAN);
    began.getFileSystem(context.getConfiguration()).create(began, true).close();
  }

  @Override
  public void commitJob(JobContext context) throws IOException {
    Path began = new Path(getJobAttemptPath(numbered(context)), BEGAN);
    if (!began.getFileSystem(context.getConfiguration()).exists(began)) {
      throw new IOException(
          "bloomseal.errors.BloomsealError: another write to the table removed what this one had written, and nothing "
              + "was added to it: write again, when the other one is done (" + began.getParent().getParent() + ")");
    }
    super.commitJob(context);
  }

  @Override
  public void cleanupJob(JobContext context) throws IOException {
    Path own = getJobAttemptPath(numbered(context));
    FileSystem files = own.getFileSystem(context.getConfiguration());
    files.delete(own, true);
    Path shared = own.getParent();
    if (files.exists(shared)) {
      FileStatus[] others = files.listStatus(shared);
      for (int i = 0; i < others.length; i++) {
        if (others[i].getModificationTime() < System.currentTimeMillis() - FORGOTTEN) {
          files.delete(others[i].getPath(), true);
        }
      }
    }
    try {
      if (files instanceof LocalFileSystem) {
        // Hadoop's own would also remove what another write has just begun there.
        Files.deleteIfExists(Paths.get(shared.toUri().getPath(), new String[0]));
      } else if (files.exists(shared) && files.listStatus(shared).length == 0) {
        files.delete(shared, false);
      }
    } catch (DirectoryNotEmptyException error) {
      return; // another write's
    }
  }
}
