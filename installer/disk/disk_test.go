//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/gpt"
	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/installer"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// release is the parts of a small release, as the factory has them.
type release struct {
	extent.Memory
	parts assembly.Parts
	boot  assembly.Boot
}

func newRelease(t testing.TB) release {
	t.Helper()
	stub, err := os.ReadFile("../../format/uki/testdata/stub.efi")
	if err != nil {
		t.Fatal(err)
	}
	grubBoot := bytes.Repeat([]byte{0xeb}, 512)
	grubBoot[510], grubBoot[511] = 0x55, 0xaa
	m := extent.Memory{}
	return release{m, assembly.Parts{
		Arch: "amd64", Version: "v1.2.3", OSRelease: "ID=talos\nVERSION_ID=v1.2.3\n",
		Kernel:      extent.FromBlob(m.Add(bytes.Repeat([]byte("MZkernel"), 100_000))),
		Initramfs:   extent.FromBlob(m.Add(bytes.Repeat([]byte("070701"), 500_001))),
		SystemdBoot: []byte("systemd-boot"), SystemdStub: stub,
		GRUBBoot: grubBoot, GRUBCore: bytes.Repeat([]byte("core"), 10_000),
	}, assembly.Boot{
		Cmdline: []string{"console=ttyS0", "talos.platform=metal"},
		Extra:   extent.FromBlob(m.Add([]byte("070701extra"))),
	}}
}

// uki is the release's, for other arguments, too.
func (r release) uki(t testing.TB, b assembly.Boot) *extent.Plan {
	t.Helper()
	plan, err := assembly.UKI(r.parts, b)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// source writes the installer's files as they are in the container.
func (r release) source(t testing.TB, change func(*installer.Record)) string {
	t.Helper()
	record := installer.Record{
		Version: r.parts.Version, BuildID: "0123", Arch: "amd64", Platform: "metal", BIOS: true, Extra: true,
		Cmdline: r.boot.Cmdline, OSRelease: r.parts.OSRelease,
	}
	if change != nil {
		change(&record)
	}
	text, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, plan := range map[string]*extent.Plan{
		installer.RecordFile: extent.FromBytes(text), installer.UKI: r.uki(t, r.boot),
		installer.Kernel: r.parts.Kernel, installer.Initramfs: r.parts.Initramfs, installer.Extra: r.boot.Extra,
		installer.SystemdBoot: extent.FromBytes(r.parts.SystemdBoot), installer.SystemdStub: extent.FromBytes(r.parts.SystemdStub),
		installer.GRUBBoot: extent.FromBytes(r.parts.GRUBBoot), installer.GRUBCore: extent.FromBytes(r.parts.GRUBCore),
	} {
		file := filepath.Join(dir, installer.Path("amd64", name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(plan.NewReader(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// image is the factory's disk of that size.
func (r release) image(t testing.TB, l layout.Layout, size int64, b assembly.Boot, values meta.Values) *extent.Plan {
	t.Helper()
	l, err := l.OfSize(size)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := assembly.Disk{Parts: r.parts, Boot: b, UKI: r.uki(t, b), Meta: values, Layout: l}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// equal compares a file with a plan, byte for byte; everywhere, or where the plan is not zeros.
func equal(t *testing.T, file string, plan *extent.Plan, source extent.Source, everywhere bool) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != plan.Size() {
		t.Fatalf("%s: got %d bytes, %v; want %d", file, info.Size(), err, plan.Size())
	}
	var spans []span
	for _, e := range plan.Extents() {
		spans = append(spans, span{e.Off, e.Len})
	}
	if everywhere { // what is a hole in the file and a gap in the plan is the same already
		spans = append(spans, data(t, f)...)
	}
	reader := plan.NewReader(source)
	defer reader.Close()
	got, want := make([]byte, 4<<20), make([]byte, 4<<20)
	for _, s := range spans {
		for at := s.off; at < s.end(); at += int64(len(want)) {
			n := min(int64(len(want)), s.end()-at)
			if _, err := reader.ReadAt(want[:n], at); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if _, err := f.ReadAt(got[:n], at); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if !bytes.Equal(got[:n], want[:n]) {
				t.Fatalf("%s differs from the image within %d bytes at %d", file, n, at)
			}
		}
	}
}

// data are the ranges of a file that are no holes.
func data(t *testing.T, f *os.File) (spans []span) {
	t.Helper()
	for at := int64(0); ; {
		from, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, syscall.ENXIO) {
			return spans
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		spans = append(spans, span{from, at - from})
	}
}

// TestNewFileIsTheImage: a file that the installer makes is the image that the factory would have made, and as sparse.
func TestNewFileIsTheImage(t *testing.T) {
	r := newRelease(t)
	const size = 3 << 30
	values := meta.Values{meta.UserReserved1: []byte("text")}
	changed := r.boot
	changed.Cmdline = []string{"console=ttyS0", "talos.platform=metal", "debug"}
	for name, tt := range map[string]struct {
		install Install
		record  func(*installer.Record)
		want    *extent.Plan
	}{
		"as shipped": {Install{}, nil, r.image(t, layout.Metal(), size, r.boot, nil)},
		"customized": {Install{ExtraArgs: []string{"debug"}, Meta: values}, nil, r.image(t, layout.Metal(), size, changed, values)},
		"UEFI only":  {Install{}, func(rec *installer.Record) { rec.BIOS = false }, r.image(t, layout.UEFI(), size, r.boot, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "disk.raw")
			i := tt.install
			i.Source, i.Arch, i.Target, i.Size = r.source(t, tt.record), "amd64", file, size
			var out bytes.Buffer
			if err := i.Run(t.Context(), &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			equal(t, file, tt.want, r, true)
			var st syscall.Stat_t
			if err := syscall.Stat(file, &st); err != nil {
				t.Fatal(err)
			}
			if used := st.Blocks * 512; used > 24<<20 {
				t.Errorf("the file uses %d bytes", used)
			}
			for _, step := range i.Steps() {
				if !strings.Contains(out.String(), step.Name) {
					t.Errorf("step %q is not told of:\n%s", step.Name, out.String())
				}
			}
			onlyFile(t, file)
		})
	}
}

// onlyFile says that nothing else is left in the file's folder.
func onlyFile(t *testing.T, files ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(files[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(files[0]) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// dirtyDisk is a disk on which there was something else: garbage at the edges of the partitions to be, and all over META and the FATs.
func dirtyDisk(t *testing.T, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	garbage := bytes.Repeat([]byte("old data"), 1<<20/8)
	copy(garbage, "XFSB")
	offsets := []int64{0, size - 1<<20}
	for _, p := range layout.Metal().Partitions {
		for at := int64(0); at < min(p.Size, 8<<20); at += 1 << 20 {
			offsets = append(offsets, p.Start+at)
		}
		offsets = append(offsets, p.Start+p.Size-1<<20)
	}
	for _, at := range offsets {
		if _, err := f.WriteAt(garbage, at); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// TestDirtyDisk: nothing that any reader looks at survives.
func TestDirtyDisk(t *testing.T) {
	r := newRelease(t)
	const size = 3<<30 + 512 // the table's copy belongs into the last sector
	file := dirtyDisk(t, size)
	i := Install{Source: r.source(t, nil), Arch: "amd64", Target: file}
	if err := i.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "it holds an XFS file system\nhint: --force") {
		t.Fatalf("got %v, want a refusal", err)
	}
	i.Force = true
	if err := i.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}

	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := gpt.Read(f, size, 512)
	if err != nil || table.DiskSize != size {
		t.Fatalf("got a table for %d bytes, %v; want %d", table.DiskSize, err, size)
	}
	want := r.image(t, layout.Metal(), size-512, r.boot, nil)
	for _, p := range layout.Metal().Partitions {
		n := min(p.Size, 4<<20)
		got, expected := make([]byte, n), make([]byte, n)
		for _, at := range []int64{p.Start, p.Start + p.Size - n} {
			if _, err := f.ReadAt(got, at); err != nil {
				t.Fatal(err)
			}
			if _, err := want.NewReader(r).ReadAt(expected, at); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			// Free clusters at the start of a FAT volume of this small release may keep old bytes.
			if p.Content == layout.FAT32 && at == p.Start {
				n = 1 << 20
			}
			if !bytes.Equal(got[:n], expected[:n]) {
				t.Errorf("%s: the %d bytes at %d are not those of the image", p.Name, n, at)
			}
		}
	}

	if err := i.Run(t.Context(), io.Discard); err != nil { // over itself
		t.Fatal(err)
	}
	i.Force = false
	if err := i.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "it holds an installed system") {
		t.Errorf("got %v, want a refusal", err)
	}
	i.Force, i.Zero = true, true
	if err := i.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
}

// stopAt cancels when a line with the text is printed.
type stopAt struct {
	text   string
	cancel context.CancelFunc
}

func (s stopAt) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.text) {
		s.cancel()
	}
	return len(b), nil
}

// TestCutShort: a disk on which an installation did not end has no partition table, and a file in the making goes away.
func TestCutShort(t *testing.T) {
	r := newRelease(t)
	for _, step := range []string{"clear the old", "write the partitions", "write the partition table", "read everything"} {
		file := dirtyDisk(t, 3<<30)
		i := Install{Source: r.source(t, nil), Arch: "amd64", Target: file, Force: true}
		ctx, cancel := context.WithCancel(t.Context())
		if err := i.Run(ctx, stopAt{step, cancel}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want canceled", step, err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		found, err := holds(f, 3<<30, 512)
		f.Close()
		if err != nil || (step != "read everything") != (found == "") {
			t.Errorf("cut short at %q: the disk holds %q, %v", step, found, err)
		}

		i.Target, i.Size = filepath.Join(t.TempDir(), "new"), 3<<30
		ctx, cancel = context.WithCancel(t.Context())
		if err := i.Run(ctx, stopAt{step, cancel}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want canceled", step, err)
		}
		onlyFile(t, filepath.Join(filepath.Dir(i.Target), "nothing"))
	}
}

func TestRefusals(t *testing.T) {
	r := newRelease(t)
	good := r.source(t, nil)
	signed := r.source(t, func(rec *installer.Record) { rec.Signed = true })
	broken := r.source(t, nil)
	if err := os.WriteFile(filepath.Join(broken, "amd64", installer.RecordFile), []byte("schema: 1\nversion: v1\narch: amd64\nosRelease: VERSION_ID=v2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	incomplete := r.source(t, nil)
	if err := os.Remove(filepath.Join(incomplete, "amd64", installer.UKI)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		i    Install
		want string
	}{
		"too small":       {Install{Source: good, Size: 1 << 30}, "cannot use a disk of 1024 MiB: the partitions need 2436 MiB, 1412 MiB more"},
		"no disk":         {Install{Source: good}, "there is no such disk"},
		"other arch":      {Install{Source: good, Size: 3 << 30, Arch: "arm64"}, "cannot install for architecture arm64: this installer has amd64"},
		"no content":      {Install{Source: t.TempDir(), Size: 3 << 30}, "this installer has none"},
		"signed":          {Install{Source: signed, Size: 3 << 30, ExtraArgs: []string{"debug"}}, "cannot change the platform or the kernel arguments"},
		"signed platform": {Install{Source: signed, Size: 3 << 30, Platform: "aws"}, "cannot change the platform or the kernel arguments"},
		"bad argument":    {Install{Source: good, Size: 3 << 30, ExtraArgs: []string{"a b"}}, "cannot use kernel argument"},
		"root hash":       {Install{Source: good, Size: 3 << 30, ExtraArgs: []string{"-talos.verity"}}, "belongs to the release"},
		"other version":   {Install{Source: broken, Size: 3 << 30}, `cannot call this version v1: the OS inside says "v2"`},
		"incomplete":      {Install{Source: incomplete, Size: 3 << 30}, installer.UKI},
		"meta too large":  {Install{Source: good, Size: 3 << 30, Meta: meta.Values{0xc: make([]byte, 1<<20)}}, "cannot store"},
		"a folder":        {Install{Source: good, Target: t.TempDir()}, "neither a disk nor a plain file"},
		"a terminal":      {Install{Source: good, Target: "/dev/null"}, "neither a disk nor a plain file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.i.Target == "" {
				tt.i.Target = filepath.Join(dir, "disk")
			}
			if tt.i.Arch == "" {
				tt.i.Arch = "amd64"
			}
			err := tt.i.Run(t.Context(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			onlyFile(t, filepath.Join(dir, "nothing"))
		})
	}

	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := (Install{Source: good, Target: file, Arch: "amd64"}).Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "has it locked") {
		t.Errorf("a locked file: got %v", err)
	}
	if err := (Install{Source: good, Target: file, Arch: "amd64", Size: 5}).Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "it is there already") {
		t.Errorf("another size: got %v", err)
	}
}

func TestHolds(t *testing.T) {
	mbrSector := make([]byte, 512)
	mbrSector[450], mbrSector[510], mbrSector[511] = 0x83, 0x55, 0xaa
	for want, content := range map[string][]byte{
		"":                           make([]byte, 64<<10),
		"an XFS file system":         []byte("XFSB"),
		"a partition table (MBR)":    mbrSector,
		"an LVM physical volume":     append(make([]byte, 512), "LABELONE"...),
		"an ISO 9660 file system":    append(make([]byte, 0x8001), "CD001"...),
		"an encrypted volume (LUKS)": []byte("LUKS\xba\xbe"),
	} {
		got, err := holds(bytes.NewReader(content), int64(len(content)), 512)
		if err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func FuzzHolds(f *testing.F) {
	f.Add([]byte("XFSB"))
	f.Add(append(make([]byte, 510), 0x55, 0xaa))
	f.Fuzz(func(t *testing.T, disk []byte) {
		if _, err := holds(bytes.NewReader(disk), int64(len(disk)), 512); err != nil {
			t.Errorf("every disk can be looked at: %v", err)
		}
	})
}

// TestLargeSectors: no BIOS boots from sectors of 4096 bytes, so there is nothing for one.
func TestLargeSectors(t *testing.T) {
	r := newRelease(t)
	c, err := openContent(r.source(t, nil), "amd64")
	if err != nil {
		t.Fatal(err)
	}
	defer c.dir.Close()
	if err := c.hash(); err != nil {
		t.Fatal(err)
	}
	l, err := c.layout(4096).OfSize(3 << 30)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.plan(l, 4096, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	table, err := gpt.Read(plan.NewReader(c), plan.Size(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{layout.EFI: true, layout.BIOS: false, layout.BOOT: false, layout.STATE: true} {
		if _, got := table.Find(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestBlanksAndExtentsDoNotOverlap(t *testing.T) {
	r := newRelease(t)
	plan := r.image(t, layout.Metal(), 3<<30, r.boot, nil)
	l, err := layout.Metal().OfSize(3 << 30)
	if err != nil {
		t.Fatal(err)
	}
	for _, gap := range blanks(plan, l) {
		if gap.n <= 0 || gap.off < 0 || gap.end() > l.Size {
			t.Errorf("blank %+v is outside of the disk", gap)
		}
		if err := plan.PutBytes(gap.off, make([]byte, gap.n)); err != nil {
			t.Error(err)
		}
	}
}
