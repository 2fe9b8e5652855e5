//go:build vm || long

package e2e

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/factory/vm"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/profiles/disk"
)

// A UEFI machine has its root in the UKI on EFI, a BIOS machine in GRUB's slot on BOOT. Neither starts if one byte of it is another.
func TestTamperedRootUEFI(t *testing.T) { tamperedRoot(t, vm.UEFI, disk.EFI) }

func TestTamperedRootBIOS(t *testing.T) { tamperedRoot(t, vm.BIOS, disk.BOOT) }

var (
	corruptBlock = regexp.MustCompile(`device-mapper: verity: \S+ data block \d+ is corrupted`)
	kernelPanic  = regexp.MustCompile(`Kernel panic - not syncing`)
)

func tamperedRoot(t *testing.T, firmware vm.Firmware, partition string) {
	file := filepath.Join(t.TempDir(), "disk")
	if err := vm.NewDisk(file, imageFile(t), diskSize); err != nil {
		t.Fatal(err)
	}
	flipRootByte(t, file, partition)
	m := boot(t, vm.Machine{Firmware: firmware, Drives: []vm.Drive{{File: file}}})
	for _, pattern := range []*regexp.Regexp{corruptBlock, kernelPanic} {
		if _, err := m.console.wait(pattern, 0, bootLimit); err != nil {
			t.Fatal(err)
		}
	}
	if text := m.console.String(); strings.Contains(text, "root is /rootfs.sqsh") {
		t.Error("the root was mounted nevertheless")
	}
}

// flipRootByte changes one bit of the squashfs that lies in a partition. It is in compressed data of the first block, which mounting reads
// and squashfs itself would not look at.
func flipRootByte(t *testing.T, image, partition string) {
	t.Helper()
	const block, at = 4096, 3000
	root, err := os.Open(squashfs(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	first := make([]byte, block)
	if _, err := io.ReadFull(root, first); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	offset := find(t, file, partition, first) + at
	if _, err := file.WriteAt([]byte{first[at] ^ 1}, offset); err != nil {
		t.Fatal(err)
	}
	t.Logf("flipped a bit of the byte at %d of the disk, in %s", offset, partition)
}

// find looks for content in a partition of a disk of 512-byte sectors and returns where on the disk it is.
func find(t *testing.T, file *os.File, partition string, content []byte) int64 {
	t.Helper()
	table, err := gpt.Read(file, diskSize, 512)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := table.Find(partition)
	if !ok {
		t.Fatalf("the disk has no partition %s", partition)
	}
	const step = 4 << 20
	window := make([]byte, step+len(content))
	for at := int64(0); at < p.Size; at += step {
		n, err := file.ReadAt(window[:min(int64(len(window)), p.Size-at)], p.Start+at)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if i := bytes.Index(window[:n], content); i >= 0 {
			return p.Start + at + int64(i)
		}
	}
	t.Fatalf("partition %s has no root", partition)
	return 0
}

var rootHashField = regexp.MustCompile(`(?m)^\s+rootHash: ([0-9a-f]{64})$`)

// showsVerifiedRoot: the running kernel verifies the root by the hash that it was given.
func (m *machine) showsVerifiedRoot(firmware vm.Firmware) {
	m.t.Helper()
	out := m.must(m.secure("get", "securitystates", "securitystate", "--output", "yaml"))
	hash := rootHashField.FindStringSubmatch(out)
	if hash == nil || !strings.Contains(out, "rootVerified: true") {
		m.t.Fatalf("the root is not verified:\n%s", out)
	}
	if cmdline := m.must(m.secure("read", "/proc/cmdline")); !strings.Contains(cmdline, "talos.verity="+hash[1]) {
		m.t.Errorf("the root is verified by %s, not by the kernel's argument: %s", hash[1], cmdline)
	}
	if uki := strings.Contains(out, "bootedWithUKI: true"); uki != (firmware == vm.UEFI) {
		m.t.Errorf("%s: booted with a UKI: %v", firmware, uki)
	}
}
