package bloomseal.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Paths;
import java.nio.file.attribute.FileAttribute;
import java.util.UUID;
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
  /** By its number Hadoop names the folder. The tasks have it from the driver, with the rest of the configuration. */
  private static final String ATTEMPT = "mapreduce.job.application.attempt.id";
  /** Where the tasks' attempts are, which no commit takes for one of them. */
  private static final String BEGAN = "_temporary/_began";
  /** After so many milliseconds without a commit the folder of another write is one of a driver that was killed. */
  private static final long FORGOTTEN = 7L * 24 * 3600 * 1000;
  private static final int TRIES = 20;

  public OwnFolder(Path output, TaskAttemptContext context) throws IOException {
    super(output, context);
  }

  @Override
  public void setupJob(JobContext context) throws IOException {
    // Spark's own name of the write is there only afterwards in some versions.
    context.getConfiguration().setInt(ATTEMPT, UUID.randomUUID().hashCode() & Integer.MAX_VALUE);
    Path began = new Path(getJobAttemptPath(context), BEGAN);
    FileSystem files = began.getFileSystem(context.getConfiguration());
    for (int left = TRIES; left > 0; left--) {
      try {
        super.setupJob(context);
        files.create(began, true).close();
        return;
      } catch (IOException error) {
        // Another write may just have removed the folder above, which was empty.
        if (left == 1) {
          throw error;
        }
      }
    }
  }

  @Override
  public void commitJob(JobContext context) throws IOException {
    Path own = getJobAttemptPath(context);
    Path began = new Path(own, BEGAN);
    FileSystem files = own.getFileSystem(context.getConfiguration());
    if (!files.exists(began)) {
      throw new IOException(
          "bloomseal.BloomsealError: another write to the table removed what this one had written, and nothing "
              + "was added to it: write again, when the other one is done (" + own + ")");
    }
    FileStatus[] tasks = files.listStatus(own);
    for (int i = 0; i < tasks.length; i++) {
      if (!tasks[i].getPath().getName().equals(began.getParent().getName())) {
        makeFolders(files, tasks[i].getPath(), getOutputPath());
      }
    }
    super.commitJob(context);
  }

  /**
   * A table's folder of a partition that is not there yet Hadoop makes by moving the task's. Has another write made it
   * in between, the task's would lie in it, and hold rows that no reader finds.
   */
  private static void makeFolders(FileSystem files, Path from, Path to) throws IOException {
    FileStatus[] found = files.listStatus(from);
    for (int i = 0; i < found.length; i++) {
      if (found[i].isDirectory()) {
        Path folder = new Path(to, found[i].getPath().getName());
        if (files instanceof LocalFileSystem) {
          // Hadoop's own starts a process for each, to give it its permissions.
          java.nio.file.Path made = local(folder);
          if (!Files.exists(made, new LinkOption[0])) {
            Files.createDirectories(made, new FileAttribute[0]);
            Files.setPosixFilePermissions(
                made, Files.getPosixFilePermissions(local(found[i].getPath()), new LinkOption[0]));
          }
        } else {
          files.mkdirs(folder);
        }
        makeFolders(files, found[i].getPath(), folder);
      }
    }
  }

  @Override
  public void cleanupJob(JobContext context) throws IOException {
    Path own = getJobAttemptPath(context);
    FileSystem files = own.getFileSystem(context.getConfiguration());
    files.delete(own, true);
    try {
      tidy(files, own.getParent());
    } catch (IOException error) {
      return; // others are at work there, or it is theirs: this write's rows are in the table
    }
  }

  private static void tidy(FileSystem files, Path shared) throws IOException {
    FileStatus[] others = files.listStatus(shared);
    for (int i = 0; i < others.length; i++) {
      if (isForgotten(files, others[i])) {
        files.delete(others[i].getPath(), true);
      }
    }
    if (files instanceof LocalFileSystem) {
      // Hadoop's own would also remove what another write has just begun there.
      Files.deleteIfExists(local(shared));
    } else if (files.listStatus(shared).length == 0) {
      files.delete(shared, false);
    }
  }

  private static java.nio.file.Path local(Path path) {
    return Paths.get(path.toUri().getPath(), new String[0]);
  }

  /** Some object stores know no time of a folder, and say 0; of files all do. */
  private static boolean isForgotten(FileSystem files, FileStatus folder) throws IOException {
    Path began = new Path(folder.getPath(), BEGAN);
    long last = folder.getModificationTime();
    if (files.exists(began)) {
      last = Math.max(last, files.getFileStatus(began).getModificationTime());
    }
    return last > 0 && last < System.currentTimeMillis() - FORGOTTEN;
  }
}
