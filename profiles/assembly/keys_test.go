package assembly_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/pe"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

// appender stands for what signs: it puts the digest of what it was given behind it. Real signatures are tested where they are made.
type appender struct {
	src extent.Source
	err error
}

func (a appender) digest(p *extent.Plan) []byte {
	h := sha256.New()
	io.Copy(h, p.NewReader(a.src))
	return h.Sum(nil)
}

func (a appender) SignProgram(p *extent.Plan) (*extent.Plan, error) {
	signed := extent.New(p.Size() + sha256.Size)
	signed.Nest(0, p)
	signed.PutBytes(p.Size(), a.digest(p))
	return signed, errors.Join(a.err, signed.Err())
}

func (a appender) PublicKey() ([]byte, error) { return []byte("PUBLIC KEY"), nil }

func (a appender) SignPCR(uki *extent.Plan) ([]byte, error) { return a.digest(uki), a.err }

func variables() map[string][]byte {
	return map[string][]byte{"PK": []byte("update of PK"), "KEK": []byte("update of KEK"), "db": []byte("update of db"), "dbx": []byte("not for this")}
}

func TestSignedUKI(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m)
	by := appender{src: m}
	keys := assembly.Keys{Programs: by, Registers: by}
	signed, err := keys.UKI(i.Parts, i.Boot)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := keys.UKI(i.Parts, i.Boot); err != nil || !reflect.DeepEqual(signed.Extents(), again.Extents()) {
		t.Errorf("signed twice, it is not the same (%v)", err)
	}
	r := signed.NewReader(m)
	texts, err := uki.Describe(r, signed.Size())
	if err != nil {
		t.Fatal(err)
	}
	image, err := pe.Parse(r, signed.Size())
	if err != nil {
		t.Fatal(err)
	}
	// The predictions are about an image that is the same but for them.
	without, err := uki.Image{
		Stub: i.Parts.SystemdStub, OSRelease: i.Parts.OSRelease, Cmdline: assembly.Cmdline(i.Boot.Cmdline), Linux: i.Parts.Kernel,
		Initrd: section(t, i), PCRPublicKey: []byte("PUBLIC KEY"),
	}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if texts[".pcrpkey"] != "PUBLIC KEY" || texts[".pcrsig"] != string(by.digest(without)) {
		t.Errorf("got key %q, predictions %x", texts[".pcrpkey"], texts[".pcrsig"])
	}
	last := image.Sections[len(image.Sections)-1]
	if want := signed.Size() - sha256.Size; last.Name != ".pcrsig" || int64(last.Offset+last.RawSize) != want {
		t.Errorf("section %s ends at %d, want .pcrsig and %d", last.Name, last.Offset+last.RawSize, want)
	}
}

func section(t *testing.T, i assembly.ISO) *extent.Plan {
	t.Helper()
	p, err := assembly.Initrd(i.Parts, i.Boot)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSignBoot: the signed boot loader is what firmware finds.
func TestSignBoot(t *testing.T) {
	i := iso(t, extent.Memory{})
	signed, err := assembly.Keys{Programs: appender{}}.SignBoot(i.Parts)
	if err != nil || len(signed.SystemdBoot) != len(i.Parts.SystemdBoot)+sha256.Size || !bytes.HasPrefix(signed.SystemdBoot, i.Parts.SystemdBoot) {
		t.Errorf("got %d bytes of %d (%v)", len(signed.SystemdBoot), len(i.Parts.SystemdBoot), err)
	}
	same, err := assembly.Keys{}.SignBoot(i.Parts)
	if err != nil || !bytes.Equal(same.SystemdBoot, i.Parts.SystemdBoot) {
		t.Errorf("without keys it changed (%v)", err)
	}
}

// TestEnrollment: the keys lie where systemd-boot looks for them, on disks and ISOs, and nowhere without Enrollment.
func TestEnrollment(t *testing.T) {
	m := extent.Memory{}
	i := iso(t, m)
	d := assembly.Disk{Parts: i.Parts, Boot: i.Boot, UKI: i.UKI, Layout: disk.UEFI()}
	for _, enroll := range []*assembly.Enrollment{nil, {Mode: "force", Variables: variables()}} {
		i.Enrollment, d.Enrollment = enroll, enroll
		for kind, plan := range map[string]func() (*extent.Plan, error){"ISO": i.Plan, "disk": d.Plan} {
			p, err := plan()
			if err != nil {
				t.Fatal(err)
			}
			var literals []byte
			for _, e := range p.Extents() {
				literals = append(literals, e.Literal...)
			}
			for text, want := range map[string]bool{
				"timeout 3\neditor no\nsecure-boot-enroll force\n": enroll != nil,
				"update of PK": enroll != nil, "update of KEK": enroll != nil, "update of db": enroll != nil, "not for this": false,
			} {
				if got := bytes.Contains(literals, []byte(text)); got != want {
					t.Errorf("%s, enrollment %v: %q is there: %v", kind, enroll != nil, text, got)
				}
			}
		}
	}
}

func TestKeysRefusals(t *testing.T) {
	i := iso(t, extent.Memory{})
	broken := appender{src: extent.Memory{}, err: os.ErrPermission}
	for want, do := range map[string]func() error{
		"signing UKI: permission":             func() error { _, err := assembly.Keys{Programs: broken}.UKI(i.Parts, i.Boot); return err },
		"signing PCR predictions: permission": func() error { _, err := assembly.Keys{Registers: broken}.UKI(i.Parts, i.Boot); return err },
		"signing systemd-boot: permission":    func() error { _, err := assembly.Keys{Programs: broken}.SignBoot(i.Parts); return err },
		`by "always"`: func() error {
			i.Enrollment = &assembly.Enrollment{Mode: "always", Variables: variables()}
			_, err := i.Plan()
			return err
		},
		"without PK.auth": func() error {
			i.Enrollment = &assembly.Enrollment{Mode: "off"}
			_, err := i.Plan()
			return err
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if diff := cmp.Diff([]string{"off", "manual", "if-safe", "force"}, assembly.EnrollModes()); diff != "" {
		t.Error(diff)
	}
}
