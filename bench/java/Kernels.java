package bloomseal.bench;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.parquet.column.values.bloomfilter.BlockSplitBloomFilter;
import org.apache.parquet.io.api.Binary;

/** parquet-java's hash, insert and look-up, one after the other and each on its own. The loops are methods, so that they get compiled. */
public final class Kernels {
    private Kernels() {}

    /**
     * The file holds values of {@code width} bytes each, one after another: little-endian longs ({@code int64}) or byte strings.
     * Answers "hash insert probe found": for each part the fastest round's nanoseconds, so that neither the compiler nor other work on the
     * machine counts against it; and how many were found.
     */
    public static String run(String file, int width, boolean int64, int bitsetBytes, int rounds) throws Exception {
        byte[] raw = Files.readAllBytes(Paths.get(file, new String[0]));
        int count = raw.length / width;
        long[] longs = new long[int64 ? count : 0];
        Binary[] strings = new Binary[int64 ? 0 : count];
        ByteBuffer buffer = ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < count; i++) {
            if (int64) {
                longs[i] = buffer.getLong(8 * i);
            } else {
                strings[i] = Binary.fromConstantByteArray(raw, i * width, width);
            }
        }
        long[] hashes = new long[count];
        long[] best = new long[] {Long.MAX_VALUE, Long.MAX_VALUE, Long.MAX_VALUE};
        int found = 0;
        for (int round = 0; round < rounds; round++) {
            BlockSplitBloomFilter filter = new BlockSplitBloomFilter(bitsetBytes, bitsetBytes);
            long start = System.nanoTime();
            if (int64) {
                hashLongs(filter, longs, hashes);
            } else {
                hashStrings(filter, strings, hashes);
            }
            long hashed = System.nanoTime();
            insert(filter, hashes);
            long inserted = System.nanoTime();
            found = find(filter, hashes);
            long probed = System.nanoTime();
            best[0] = Math.min(best[0], hashed - start);
            best[1] = Math.min(best[1], inserted - hashed);
            best[2] = Math.min(best[2], probed - inserted);
        }
        return best[0] + " " + best[1] + " " + best[2] + " " + found;
    }

    private static void hashLongs(BlockSplitBloomFilter filter, long[] values, long[] hashes) {
        for (int i = 0; i < values.length; i++) {
            hashes[i] = filter.hash(values[i]);
        }
    }

    private static void hashStrings(BlockSplitBloomFilter filter, Binary[] values, long[] hashes) {
        for (int i = 0; i < values.length; i++) {
            hashes[i] = filter.hash(values[i]);
        }
    }

    private static void insert(BlockSplitBloomFilter filter, long[] hashes) {
        for (int i = 0; i < hashes.length; i++) {
            filter.insertHash(hashes[i]);
        }
    }

    private static int find(BlockSplitBloomFilter filter, long[] hashes) {
        int found = 0;
        for (int i = 0; i < hashes.length; i++) {
            if (filter.findHash(hashes[i])) {
                found++;
            }
        }
        return found;
    }
}
