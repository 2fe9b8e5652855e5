//go:build bench

package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/profiles"
)

// point is a measurement of docs/performance.svg.
type point struct {
	size            profiles.Size
	write, checksum time.Duration
}

// TestPlot measures customizations of growing disks. -update writes docs/performance.svg.
func TestPlot(t *testing.T) {
	var points []point
	b := testing.Benchmark(func(b *testing.B) {
		warm(b, "metal")
		points = nil
		for _, gib := range []int{4, 8, 16, 32, 64} {
			p := customized(b, "metal", gib)
			p.Output.DiskSize = profiles.Size(gib) << 30
			at := point{size: p.Output.DiskSize}
			disk := plan(b, p)
			at.write = timedWriteOf(b, p)
			at.checksum = timed(1, func() {
				r := disk.NewReader(factory.Blobs(engine.Store))
				defer r.Close()
				if _, err := io.CopyBuffer(struct{ io.Writer }{sha256.New()}, struct{ io.Reader }{r}, make([]byte, 1<<20)); err != nil {
					b.Fatal(err)
				}
			})
			points = append(points, at)
		}
	})
	if b.N == 0 {
		t.Fatal("the measurement failed")
	}
	for _, p := range points {
		t.Logf("%8s disk: planned and written in %6.0f ms, checksum in %6.0f ms", p.size, ms(p.write), ms(p.checksum))
	}
	if first, last := points[0], points[len(points)-1]; last.write > 4*first.write+50*time.Millisecond {
		t.Errorf("writing a disk of %s takes %v, one of %s %v: time grows with size", last.size, last.write, first.size, first.write)
	}
	if *update {
		if err := os.WriteFile(filepath.Join("..", "docs", "performance.svg"), []byte(plot(points)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func timedWriteOf(b *testing.B, p profiles.Profile) time.Duration {
	b.Helper()
	file := filepath.Join(b.TempDir(), "out")
	best := time.Duration(math.MaxInt64)
	for range runs {
		best = min(best, timed(1, func() { write(b, file, plan(b, p)) }))
		if err := os.Remove(file); err != nil {
			b.Fatal(err)
		}
	}
	return best
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// plot draws both times over the disk's size, logarithmically.
func plot(points []point) string {
	const width, height, left, top = 640, 360, 70, 30
	x := func(p point) float64 { return left + (math.Log2(float64(p.size>>30))-2)/4*(width-left-40) }
	y := func(d time.Duration) float64 { return height - 50 - (math.Log10(ms(d))-1)/4*(height-50-top) }
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="18">a new customization of a disk image: time over the disk's size</text>`+"\n", width, height, left)
	for decade := 1; decade <= 5; decade++ {
		at := y(time.Duration(math.Pow10(decade)) * time.Millisecond)
		fmt.Fprintf(&s, `<line x1="%d" x2="%d" y1="%.0f" y2="%.0f" stroke="#ddd"/><text x="%d" y="%.0f" text-anchor="end">%.0f ms</text>`+"\n",
			left, width-40, at, at, left-6, at+4, math.Pow10(decade))
	}
	for _, series := range []struct {
		name, color string
		value       func(point) time.Duration
	}{
		{"planned and written", "#06c", func(p point) time.Duration { return p.write }},
		{"checksum of the whole file", "#c60", func(p point) time.Duration { return p.checksum }},
	} {
		var line []string
		for _, p := range points {
			line = append(line, fmt.Sprintf("%.1f,%.1f", x(p), y(series.value(p))))
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(p), y(series.value(p)), series.color)
		}
		last := points[len(points)-1]
		fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s"/><text x="%.0f" y="%.0f" text-anchor="end" fill="%s">%s</text>`+"\n",
			strings.Join(line, " "), series.color, x(last), y(series.value(last))-8, series.color, series.name)
	}
	for _, p := range points {
		fmt.Fprintf(&s, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(p), height-30, p.size)
	}
	return s.String() + "</svg>\n"
}

// TestPeakMemory: assembling takes the same little memory whatever the size.
func TestPeakMemory(t *testing.T) {
	const limit = 256 << 10 // KiB, as getrusage(2) counts
	for _, args := range [][]string{
		{"metal", "--disk-size", "16GiB"}, {"aws", "--disk-size", "16GiB"}, {"digital-ocean", "--disk-size", "16GiB"}, {"gcp", "--disk-size", "16GiB"},
		{"vmware", "--disk-size", "500GiB"}, {"exoscale", "--disk-size", "500GiB"}, {"azure", "--disk-size", "16GiB"}, {"iso"}, {"installer"},
	} {
		cmd := exec.Command(filepath.Join("..", "bin", "factory"), append([]string{"build", "--output", t.TempDir(), "--progress", "quiet"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("factory build %q: %v\n%s", args, err, out)
		}
		usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			t.Fatal("internal error: no resource usage")
		}
		t.Logf("factory build %q: at most %d MiB", args, usage.Maxrss>>10)
		if usage.Maxrss > limit {
			t.Errorf("factory build %q took %d MiB, more than %d", args, usage.Maxrss>>10, limit>>10)
		}
	}
}
