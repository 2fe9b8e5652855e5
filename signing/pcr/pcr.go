// Package pcr predicts PCR 11 of a machine that boots a unified kernel image (UKI), in SHA-256, SHA-384 and SHA-512, and signs the
// predictions: disk keys that a TPM has sealed for the signing key are then given out to every image that it signed. Values and
// signatures are those of systemd-measure(1).
//
// No TPM is needed and none is talked to. Other registers than 11, which depend on the machine, are not predicted.
package pcr

import (
	"crypto"
	_ "crypto/sha256" // the banks
	_ "crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"

	"github.com/talos-factory/talos-factory/format/pe"
)

// Index is the register that systemd-stub measures a UKI into (UAPI Group "Linux TPM PCR Registry").
const Index = 11

// Phases are the words that are measured while a machine boots, in order. A path of phases is its first ones with colons between
// them, as systemd-pcrphase.service(8) has it.
const (
	EnterInitrd   = "enter-initrd"
	LeaveInitrd   = "leave-initrd"
	EnterMachined = "enter-machined"
)

// Running is the path up to when the machine's own programs run.
const Running = EnterInitrd + ":" + LeaveInitrd + ":" + EnterMachined

// Banks are the hashes that a TPM keeps registers in, as far as they are predicted.
func Banks() []crypto.Hash { return []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512} }

// measured are the sections that systemd-stub measures, in its order (systemd src/fundamental/uki.c). The signature of predictions,
// .pcrsig, is not among them.
func measured() []string {
	return []string{
		".linux", ".osrel", ".cmdline", ".initrd", ".ucode", ".splash", ".dtb", ".uname", ".sbat", ".pcrpkey", ".profile", ".dtbauto", ".hwids",
	}
}

// Values are those of the register in each bank. They do not change; what follows makes others.
type Values map[crypto.Hash][]byte

// Measure predicts the values that systemd-stub leaves when it starts the kernel of a UKI of size bytes.
func Measure(r io.ReaderAt, size int64) (Values, error) {
	image, err := pe.Parse(r, size)
	if err != nil {
		return nil, err
	}
	if _, ok := image.Section(".linux"); !ok {
		return nil, errors.New("cannot predict what is measured of a program that has no kernel in it")
	}
	values := Values{}
	for _, bank := range Banks() {
		values[bank] = make([]byte, bank.Size())
	}
	for _, name := range measured() {
		if err := onlyOne(image, name); err != nil {
			return nil, err
		}
		section, ok := image.Section(name)
		if !ok || section.Size == 0 {
			continue
		}
		if int64(section.Size) != section.DataSize() {
			return nil, fmt.Errorf("cannot predict what is measured of section %s: it is larger in memory than in the file", name)
		}
		values = values.extend(values.digests([]byte(name + "\x00")))
		digests, err := content(io.NewSectionReader(r, int64(section.Offset), section.DataSize()))
		if err != nil {
			return nil, fmt.Errorf("measuring section %s: %w", name, err)
		}
		values = values.extend(digests)
	}
	return values, nil
}

// onlyOne refuses UKIs of several profiles: which one boots is not known.
func onlyOne(image *pe.Image, name string) error {
	n := 0
	for _, s := range image.Sections {
		if s.Name == name {
			n++
		}
	}
	if n > 1 {
		return fmt.Errorf("cannot predict what is measured of %d sections %s", n, name)
	}
	return nil
}

// content hashes for each bank, at the same time, reading once.
func content(r io.Reader) (map[crypto.Hash][]byte, error) {
	hashes := map[crypto.Hash]hash.Hash{}
	for _, bank := range Banks() {
		hashes[bank] = bank.New()
	}
	for chunk := make([]byte, 1<<20); ; {
		n, err := io.ReadFull(r, chunk)
		var all sync.WaitGroup
		for _, h := range hashes {
			all.Go(func() { h.Write(chunk[:n]) })
		}
		all.Wait()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	digests := map[crypto.Hash][]byte{}
	for bank, h := range hashes {
		digests[bank] = h.Sum(nil)
	}
	return digests, nil
}

func (v Values) digests(b []byte) map[crypto.Hash][]byte {
	digests := map[crypto.Hash][]byte{}
	for bank := range v {
		digests[bank] = sum(bank, b)
	}
	return digests
}

// extend is TPM2_PCR_Extend (TPM 2.0 Library, part 3, 22.2).
func (v Values) extend(digests map[crypto.Hash][]byte) Values {
	next := Values{}
	for bank, old := range v {
		next[bank] = sum(bank, old, digests[bank])
	}
	return next
}

// After predicts the values after the phases of a path; none are in "".
func (v Values) After(path string) Values {
	if path == "" {
		return v
	}
	for phase := range strings.SplitSeq(path, ":") {
		v = v.extend(v.digests([]byte(phase)))
	}
	return v
}

func sum(bank crypto.Hash, parts ...[]byte) []byte {
	h := bank.New()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}
