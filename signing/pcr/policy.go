package pcr

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// Constants of TPM 2.0 Library, part 2.
const (
	ccPolicyPCR = 0x0000017f // 6.5.2

	algSHA256 = 0x000b // 6.3
	algSHA384 = 0x000c
	algSHA512 = 0x000d
)

// Policy is the digest of a policy that asks for a value of the register in a bank: what TPM2_PolicyPCR (TPM 2.0 Library, part 3, 23.7)
// makes of an empty session. The session's hash is SHA-256, whatever the bank.
func Policy(bank crypto.Hash, value []byte) ([sha256.Size]byte, error) {
	var alg uint16
	switch bank {
	case crypto.SHA256:
		alg = algSHA256
	case crypto.SHA384:
		alg = algSHA384
	case crypto.SHA512:
		alg = algSHA512
	default:
		return [sha256.Size]byte{}, fmt.Errorf("cannot use a bank of %s", bank)
	}
	if len(value) != bank.Size() {
		return [sha256.Size]byte{}, fmt.Errorf("cannot use a value of %d bytes in a bank of %s", len(value), bank)
	}
	b := make([]byte, sha256.Size) // the digest of a session that has just begun
	b = binary.BigEndian.AppendUint32(b, ccPolicyPCR)
	b = binary.BigEndian.AppendUint32(b, 1) // TPML_PCR_SELECTION of one TPMS_PCR_SELECTION
	b = binary.BigEndian.AppendUint16(b, alg)
	b = append(b, 3, 0, 1<<(Index-8), 0) // 24 registers as bits
	values := sha256.Sum256(value)
	return sha256.Sum256(append(b, values[:]...)), nil
}

// entry is a signed policy in .pcrsig (systemd-measure(1)).
type entry struct {
	PCRs        []int  `json:"pcrs"`
	Fingerprint string `json:"pkfp"` // of the public key
	Policy      string `json:"pol"`
	Signature   []byte `json:"sig"`
}

// document is .pcrsig. encoding/json keeps the order.
type document struct {
	SHA256 []entry `json:"sha256,omitempty"`
	SHA384 []entry `json:"sha384,omitempty"`
	SHA512 []entry `json:"sha512,omitempty"`
}

func (d *document) bank(bank crypto.Hash) *[]entry {
	switch bank {
	case crypto.SHA256:
		return &d.SHA256
	case crypto.SHA384:
		return &d.SHA384
	}
	return &d.SHA512
}

// Sign signs the values after each path of phases, in every bank, and returns the content of section .pcrsig. The key is RSA.
func Sign(v Values, key crypto.Signer, paths ...string) ([]byte, error) {
	public, ok := key.Public().(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("cannot sign PCR policies with a %T: TPMs want RSA", key.Public())
	}
	var d document
	for _, bank := range Banks() {
		entries := d.bank(bank)
		for _, path := range paths {
			policy, err := Policy(bank, v.After(path)[bank])
			if err != nil {
				return nil, err
			}
			signature, err := signPolicy(bank, policy, key, public)
			if err != nil {
				return nil, fmt.Errorf("signing the PCR policy of %q: %w", path, err)
			}
			*entries = append(*entries, entry{[]int{Index}, fingerprint(public), hex.EncodeToString(policy[:]), signature})
		}
	}
	b, err := json.Marshal(d)
	return append(b, '\n'), err
}

// signPolicy hashes the policy with the bank's hash, as systemd does.
func signPolicy(bank crypto.Hash, policy [sha256.Size]byte, key crypto.Signer, public *rsa.PublicKey) ([]byte, error) {
	digest := sum(bank, policy[:])
	signature, err := key.Sign(rand.Reader, digest, bank) // PKCS#1 v1.5: chance has no part in it
	if err != nil {
		return nil, err
	}
	if err := rsa.VerifyPKCS1v15(public, bank, digest, signature); err != nil {
		return nil, fmt.Errorf("checking what the key returned: %w", err)
	}
	return signature, nil
}

// Verify checks that a .pcrsig has, for every bank, a policy of the values after path that the key has signed. It may have others.
func Verify(signed []byte, v Values, public *rsa.PublicKey, path string) error {
	var d document
	if err := json.Unmarshal(signed, &d); err != nil {
		return fmt.Errorf("reading PCR signatures: %w", err)
	}
	for _, bank := range Banks() {
		policy, err := Policy(bank, v.After(path)[bank])
		if err != nil {
			return err
		}
		if err := find(*d.bank(bank), bank, policy, public); err != nil {
			return fmt.Errorf("bank %s, phases %q: %w", bank, path, err)
		}
	}
	return nil
}

func find(entries []entry, bank crypto.Hash, policy [sha256.Size]byte, public *rsa.PublicKey) error {
	for _, e := range entries {
		if len(e.PCRs) != 1 || e.PCRs[0] != Index || e.Policy != hex.EncodeToString(policy[:]) || e.Fingerprint != fingerprint(public) {
			continue
		}
		if err := rsa.VerifyPKCS1v15(public, bank, sum(bank, policy[:]), e.Signature); err != nil {
			return fmt.Errorf("cannot accept the signature of the PCR policy: %w", err)
		}
		return nil
	}
	return errors.New("cannot find a signature of the predicted PCR policy by this key")
}

// fingerprint is the hash of a public key as PKCS#1 (RFC 8017, A.1.1) has it.
func fingerprint(public *rsa.PublicKey) string {
	sum := sha256.Sum256(x509.MarshalPKCS1PublicKey(public))
	return hex.EncodeToString(sum[:])
}

// PublicKey is the content of section .pcrpkey.
func PublicKey(key crypto.Signer) ([]byte, error) {
	public, ok := key.Public().(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("cannot sign PCR policies with a %T: TPMs want RSA", key.Public())
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
