// Package uki plans unified kernel images (UAPI Group specification "UKI"): one PE image of systemd-stub, a kernel, its initrd,
// its command line and a few facts, which firmware starts as a whole.
//
// It signs nothing and predicts no PCR, but has a place for such predictions, signed; one profile only. Kernel and initrd are plans that are nested, not read.
package uki

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/pe"
)

// Image is what goes into a UKI.
type Image struct {
	Stub      []byte       // systemd-stub; it brings its own .sbat, and a second must not be added
	OSRelease string       // the text of os-release: boot loaders show PRETTY_NAME and sort by VERSION_ID
	Cmdline   string       // the kernel's command line
	Uname     string       // the kernel's release, "6.12.41"; may be empty
	Linux     *extent.Plan // the kernel, an EFI executable
	Initrd    *extent.Plan // a cpio archive

	// PCRPublicKey is the key, PEM, that predictions of PCR 11 are signed with, and PCRSignature is these, JSON. The signature is
	// about all sections but itself, so an image is planned without it first. Both may be missing.
	PCRPublicKey, PCRSignature []byte
}

// data is what all sections are that are not executed.
const data = pe.Initialized | pe.Read

// Plan lays out the image.
func (i Image) Plan() (*extent.Plan, error) {
	if i.OSRelease == "" || i.Linux == nil || i.Initrd == nil {
		return nil, errors.New("cannot make a UKI without os-release, kernel or initrd")
	}
	if strings.ContainsAny(i.Cmdline, "\x00\n") {
		return nil, fmt.Errorf("cannot use command line %q: has a line break or NUL", i.Cmdline)
	}
	var add []pe.Addition
	text := func(name, s string) {
		if s != "" {
			add = append(add, pe.Addition{Name: name, Flags: data, Content: extent.FromBytes([]byte(s))})
		}
	}
	text(".osrel", i.OSRelease)
	text(".cmdline", i.Cmdline)
	text(".uname", i.Uname)
	text(".pcrpkey", string(i.PCRPublicKey))
	// Executable, since the stub enters kernels older than 5.8 where they lie (the EFI handover protocol).
	add = append(add,
		pe.Addition{Name: ".linux", Flags: pe.Code | pe.Execute | pe.Read, Content: i.Linux},
		pe.Addition{Name: ".initrd", Flags: data, Content: i.Initrd})
	text(".pcrsig", string(i.PCRSignature))
	p, err := pe.Append(i.Stub, add)
	if err != nil {
		return nil, fmt.Errorf("making a UKI: %w", err)
	}
	return p, nil
}

// maxText is the size up to which Describe reads a section.
const maxText = 64 << 10

// Describe reads the short sections of a UKI of size bytes: name to text.
func Describe(r io.ReaderAt, size int64) (map[string]string, error) {
	image, err := pe.Parse(r, size)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, name := range []string{".osrel", ".cmdline", ".uname", ".sbat", ".pcrpkey", ".pcrsig"} {
		s, ok := image.Section(name)
		if !ok {
			continue
		}
		if s.DataSize() > maxText {
			return nil, fmt.Errorf("cannot read section %s of %d bytes as text", name, s.DataSize())
		}
		b := make([]byte, s.DataSize())
		if n, err := r.ReadAt(b, int64(s.Offset)); n < len(b) {
			return nil, fmt.Errorf("reading section %s: %w", name, err)
		}
		texts[name] = string(b)
	}
	if _, ok := image.Section(".linux"); !ok {
		return nil, errors.New("cannot read this as a UKI: it has no kernel")
	}
	return texts, nil
}
