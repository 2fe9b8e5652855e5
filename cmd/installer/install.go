//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"

	"github.com/talos-factory/talos-factory/format/meta"
	"github.com/talos-factory/talos-factory/installer"
	"github.com/talos-factory/talos-factory/installer/disk"
)

const usage = `usage: installer install --disk DEVICE|FILE [flags]

Puts the system that this installer brings on a whole disk. A disk that holds something is refused without --force.

  --disk DEVICE|FILE        where to: a whole disk, or a plain file in its place
  --size SIZE               make the plain file, of so many bytes (KiB, MiB, GiB may follow); it uses what is written only
  --arch ARCH               of the system; default: of this machine
  --platform NAME           other than this installer was made for
  --extra-kernel-arg ARG    a kernel argument more, or one less if it begins with "-"; repeatable
  --meta KEY=VALUE          a value of META, the key as a number such as 0xc; repeatable
  --force                   write over what the disk holds
  --zero                    make the whole disk zeros first
  --dry-run                 print the steps and do nothing
  --source DIR              where the installer's files are; default: ` + installer.Dir

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprintln(stdout, usage)
		return nil
	}
	if args[0] != "install" {
		return fmt.Errorf("cannot %s: there is one command, install\nhint: installer install --disk /dev/sda", args[0])
	}
	return install(ctx, args[1:], stdout)
}

func install(ctx context.Context, args []string, stdout io.Writer) error {
	i := disk.Install{Source: installer.Dir, Arch: runtime.GOARCH, Meta: meta.Values{}}
	dryRun := false
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&i.Target, "disk", "", "")
	flags.Func("size", "", func(s string) (err error) { i.Size, err = parseSize(s); return err })
	flags.StringVar(&i.Arch, "arch", i.Arch, "")
	flags.StringVar(&i.Platform, "platform", "", "")
	flags.Func("extra-kernel-arg", "", func(s string) error { i.ExtraArgs = append(i.ExtraArgs, s); return nil })
	flags.Func("meta", "", func(s string) error { return addMeta(i.Meta, s) })
	flags.BoolVar(&i.Force, "force", false, "")
	flags.BoolVar(&i.Zero, "zero", false, "")
	flags.BoolVar(&dryRun, "dry-run", false, "")
	flags.StringVar(&i.Source, "source", i.Source, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stdout, usage)
		return nil
	case err != nil:
		return fmt.Errorf("%w\nhint: installer install --help lists the flags", err)
	case flags.NArg() > 0:
		return fmt.Errorf("cannot use %q: everything is said by flags\nhint: installer install --disk %s", flags.Arg(0), flags.Arg(0))
	case i.Target == "":
		return errors.New("cannot install: no disk is named\nhint: installer install --disk /dev/sda")
	}
	if dryRun {
		for n, step := range i.Steps() {
			fmt.Fprintf(stdout, "%2d %s\n", n+1, step.Name)
		}
		return nil
	}
	return i.Run(ctx, stdout)
}

func parseSize(s string) (int64, error) {
	number, unit := s, int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}} {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("cannot read %q as a size: want 10GiB, 4096MiB or bytes", s)
	}
	return n * unit, nil
}

// addMeta reads KEY=VALUE.
func addMeta(values meta.Values, s string) error {
	key, value, ok := strings.Cut(s, "=")
	tag, err := strconv.ParseUint(key, 0, 8)
	if !ok || err != nil || tag == 0 {
		return fmt.Errorf("cannot read %q as a META value: want KEY=VALUE with a key from 1 to 255, such as 0xc=text", s)
	}
	if _, twice := values[meta.Tag(tag)]; twice {
		return fmt.Errorf("cannot set META key %#x twice", tag)
	}
	values[meta.Tag(tag)] = []byte(value)
	return nil
}
