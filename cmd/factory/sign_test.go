package main

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/uki"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	"github.com/talos-factory/talos-factory/signing"
	"github.com/talos-factory/talos-factory/signing/authenticode"
	"github.com/talos-factory/talos-factory/signing/pcr"
)

// TestSignedParts: with a set of keys as keys generate makes it, what boots has signatures of its keys, the same ones each time.
func TestSignedParts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if err := (signing.Plan{Name: "Test"}).Generate(dir); err != nil {
		t.Fatal(err)
	}
	f := signFlags{keys: dir}
	set, err := f.open(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	m := extent.Memory{}
	keys := f.with(set, m)
	parts, err := keys.SignBoot(assembly.Parts{
		OSRelease: "ID=talos\n", SystemdStub: stub, SystemdBoot: stub, // any EFI program
		Kernel:    extent.FromBlob(m.Add(bytes.Repeat([]byte("kernel"), 100_000))),
		Initramfs: extent.FromBlob(m.Add(bytes.Repeat([]byte("initramfs"), 100_000))),
	})
	if err != nil {
		t.Fatal(err)
	}
	boot := assembly.Boot{Cmdline: []string{"console=ttyS0"}}
	plan, err := keys.UKI(parts, boot)
	if err != nil {
		t.Fatal(err)
	}
	trusted := []*x509.Certificate{set.UKI.Certificate()}
	for name, program := range map[string]*extent.Plan{"systemd-boot": extent.FromBytes(parts.SystemdBoot), "UKI": plan} {
		if _, err := authenticode.Verify(program.NewReader(m), program.Size(), trusted); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	texts, err := uki.Describe(plan.NewReader(m), plan.Size())
	if err != nil {
		t.Fatal(err)
	}
	values, err := pcr.Measure(plan.NewReader(m), plan.Size())
	if err != nil {
		t.Fatal(err)
	}
	if err := pcr.Verify([]byte(texts[".pcrsig"]), values, set.PCR.Public().(*rsa.PublicKey), pcr.Running); err != nil {
		t.Error(err)
	}
	again, err := keys.UKI(parts, boot)
	if err != nil {
		t.Fatal(err)
	}
	first, err := io.ReadAll(plan.NewReader(m))
	if err != nil {
		t.Fatal(err)
	}
	if second, err := io.ReadAll(again.NewReader(m)); err != nil || !bytes.Equal(first, second) {
		t.Errorf("signed twice, it is not the same (%v)", err)
	}
	if keys.Enrollment.Mode != "if-safe" || len(keys.Enrollment.Variables["db"]) == 0 {
		t.Errorf("enrollment is %q with %d variables", keys.Enrollment.Mode, len(keys.Enrollment.Variables))
	}
}
