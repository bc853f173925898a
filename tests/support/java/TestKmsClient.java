package bloomseal.harness;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KmsClient;

/**
 * A KMS whose master keys stand in the configuration: {@code bloomseal.harness.master.keys} is a list of {@code id=hex}, split by
 * semicolons. A wrapped key is base64(nonce of 12 bytes, ciphertext, tag of 16 bytes); the AAD is the master key's id in UTF-8.
 */
public final class TestKmsClient implements KmsClient {
    private final Map keys = new HashMap();

    public void initialize(Configuration conf, String instance, String url, String token) throws KeyAccessDeniedException {
        String[] entries = conf.get("bloomseal.harness.master.keys", "").split(";");
        for (int i = 0; i < entries.length; i++) {
            int at = entries[i].lastIndexOf('=');
            if (at > 0) {
                keys.put(entries[i].substring(0, at), Values.unhex(entries[i].substring(at + 1)));
            }
        }
    }

    public String wrapKey(byte[] key, String masterKey) throws KeyAccessDeniedException {
        byte[] nonce = new byte[12];
        new SecureRandom().nextBytes(nonce);
        byte[] sealed = run(Cipher.ENCRYPT_MODE, masterKey, nonce, key);
        return Base64.getEncoder().encodeToString(ByteBuffer.allocate(12 + sealed.length).put(nonce).put(sealed).array());
    }

    public byte[] unwrapKey(String wrapped, String masterKey) throws KeyAccessDeniedException {
        byte[] all = Base64.getDecoder().decode(wrapped);
        return run(Cipher.DECRYPT_MODE, masterKey, Arrays.copyOf(all, 12), Arrays.copyOfRange(all, 12, all.length));
    }

    private byte[] run(int mode, String masterKey, byte[] nonce, byte[] input) throws KeyAccessDeniedException {
        byte[] key = (byte[]) keys.get(masterKey);
        if (key == null) {
            throw new KeyAccessDeniedException("no master key named " + masterKey);
        }
        try {
            Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
            cipher.init(mode, new SecretKeySpec(key, "AES"), new GCMParameterSpec(128, nonce));
            cipher.updateAAD(masterKey.getBytes(StandardCharsets.UTF_8));
            return cipher.doFinal(input);
        } catch (GeneralSecurityException e) {
            throw new ParquetCryptoRuntimeException("the master key " + masterKey + " does not open this", e);
        }
    }
}
