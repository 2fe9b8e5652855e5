package signing

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"hash"
)

// errWrongPassphrase is also what a damaged file looks like.
var errWrongPassphrase = errors.New("cannot decrypt the key: the passphrase is wrong, or the file is damaged")

// RFC 8018: PBES2 (6.2) with PBKDF2 (5.2) and AES-CBC (B.2.5), which is what OpenSSL writes.
var (
	oidPBES2      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidHMACSHA1   = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 7}
	oidHMACSHA256 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 9}
	oidHMACSHA512 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 11}
	oidAES128CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 2}
	oidAES192CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 22}
	oidAES256CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}
)

const (
	iterations    = 600_000    // what OWASP asks of PBKDF2 with HMAC-SHA-256
	maxIterations = 10_000_000 // a file must not keep us busy for longer than a few seconds
)

type encryptedKey struct {
	Algorithm struct {
		ID         asn1.ObjectIdentifier
		Parameters struct {
			Derivation struct {
				ID         asn1.ObjectIdentifier
				Parameters pbkdf2Parameters
			}
			Cipher struct {
				ID asn1.ObjectIdentifier
				IV []byte
			}
		}
	}
	Data []byte
}

type pbkdf2Parameters struct {
	Salt       []byte
	Iterations int
	KeyLength  int                      `asn1:"optional"`
	PRF        pkix.AlgorithmIdentifier `asn1:"optional"`
}

// decryptPKCS8 opens EncryptedPrivateKeyInfo (RFC 5958, 3).
func decryptPKCS8(der []byte, passphrase Secret) ([]byte, error) {
	var scheme struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}
	if _, err := asn1.Unmarshal(der, &scheme); err != nil {
		return nil, fmt.Errorf("reading encrypted key: %w", err)
	}
	if !scheme.Algorithm.Algorithm.Equal(oidPBES2) {
		return nil, fmt.Errorf("cannot decrypt a key encrypted with %s: want PBES2", scheme.Algorithm.Algorithm)
	}
	var e encryptedKey
	if rest, err := asn1.Unmarshal(der, &e); err != nil || len(rest) > 0 {
		return nil, errors.New("cannot decrypt the key: want PBES2 with PBKDF2 and AES-CBC")
	}
	block, err := e.cipher(passphrase)
	if err != nil {
		return nil, err
	}
	iv := e.Algorithm.Parameters.Cipher.IV
	if len(iv) != aes.BlockSize || len(e.Data) == 0 || len(e.Data)%aes.BlockSize != 0 {
		return nil, fmt.Errorf("cannot decrypt %d bytes with an initial vector of %d", len(e.Data), len(iv))
	}
	plain := make([]byte, len(e.Data))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, e.Data)
	return unpad(plain)
}

func (e *encryptedKey) cipher(passphrase Secret) (cipher.Block, error) {
	p := e.Algorithm.Parameters
	size := 0
	for _, c := range []struct {
		id   asn1.ObjectIdentifier
		size int
	}{{oidAES128CBC, 16}, {oidAES192CBC, 24}, {oidAES256CBC, 32}} {
		if p.Cipher.ID.Equal(c.id) {
			size = c.size
		}
	}
	var prf func() hash.Hash
	switch id := p.Derivation.Parameters.PRF.Algorithm; {
	case len(id) == 0, id.Equal(oidHMACSHA1):
		prf = sha1.New
	case id.Equal(oidHMACSHA256):
		prf = sha256.New
	case id.Equal(oidHMACSHA512):
		prf = sha512.New
	}
	count := p.Derivation.Parameters.Iterations
	switch {
	case !p.Derivation.ID.Equal(oidPBKDF2) || size == 0 || prf == nil:
		return nil, errors.New("cannot decrypt the key: want PBES2 with PBKDF2 (SHA-1, SHA-256, SHA-512) and AES-CBC")
	case count < 1 || count > maxIterations:
		return nil, fmt.Errorf("cannot decrypt the key: %d iterations, want 1 to %d", count, maxIterations)
	case p.Derivation.Parameters.KeyLength != 0 && p.Derivation.Parameters.KeyLength != size:
		return nil, fmt.Errorf("cannot decrypt the key: a key of %d bytes for a cipher that takes %d", p.Derivation.Parameters.KeyLength, size)
	}
	key, err := pbkdf2.Key(prf, string(passphrase), p.Derivation.Parameters.Salt, count, size)
	if err != nil {
		return nil, fmt.Errorf("deriving the key's key: %w", err)
	}
	return aes.NewCipher(key)
}

// encryptPKCS8 is what decryptPKCS8 opens: PBKDF2 with HMAC-SHA-256, AES-256-CBC.
func encryptPKCS8(plain []byte, passphrase Secret) ([]byte, error) {
	random := make([]byte, 16+aes.BlockSize)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("drawing a salt: %w", err)
	}
	var e encryptedKey
	e.Algorithm.ID = oidPBES2
	p := &e.Algorithm.Parameters
	p.Derivation.ID = oidPBKDF2
	p.Derivation.Parameters = pbkdf2Parameters{Salt: random[:16], Iterations: iterations, PRF: pkix.AlgorithmIdentifier{Algorithm: oidHMACSHA256, Parameters: asn1.NullRawValue}}
	p.Cipher.ID, p.Cipher.IV = oidAES256CBC, random[16:]
	block, err := e.cipher(passphrase)
	if err != nil {
		return nil, err
	}
	n := aes.BlockSize - len(plain)%aes.BlockSize
	e.Data = append([]byte(nil), plain...)
	for range n {
		e.Data = append(e.Data, byte(n))
	}
	cipher.NewCBCEncrypter(block, p.Cipher.IV).CryptBlocks(e.Data, e.Data)
	return asn1.Marshal(e)
}

// unpad takes away the padding of RFC 8018, 6.1.1, and says no more than that it is wrong.
func unpad(b []byte) ([]byte, error) {
	n := int(b[len(b)-1])
	if n == 0 || n > aes.BlockSize {
		return nil, errWrongPassphrase
	}
	good := 1
	for _, p := range b[len(b)-n:] {
		good &= subtle.ConstantTimeByteEq(p, byte(n))
	}
	if good != 1 {
		return nil, errWrongPassphrase
	}
	return b[:len(b)-n], nil
}
