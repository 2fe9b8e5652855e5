//go:build linux

// Package disk finds the disk the machine was started from by its partition labels, enlarges its last partition to the disk's end,
// formats what was never formatted, and mounts it.
//
// It never formats anything that holds data it does not know, never shrinks or moves, and knows only the partitions of
// profiles/disk. It does not write boot partitions.
package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	layout "github.com/talos-factory/talos-factory/profiles/disk"
)

// ErrNone is returned by Find if no disk has a partition with the label META.
var ErrNone = errors.New("no disk has a META partition")

// System is the machine's disk as the kernel shows it in sysfs.
type System struct {
	Name       string // "vda"
	Partitions map[string]Partition
	Others     []string // further disks with a META partition, not used
}

// Partition is one partition by its label.
type Partition struct {
	Name   string // "vda4"
	Number int
}

// Device is the node of the whole disk.
func (s System) Device() string { return "/dev/" + s.Name }

// Device is the partition's node.
func (p Partition) Device() string { return "/dev/" + p.Name }

// Find looks through a sysfs class directory of block devices ("/sys/class/block") for the disk with the META label. If several
// have it, the first by name is taken and the others are named.
func Find(class string) (System, error) {
	disks, err := all(class)
	if err != nil {
		return System{}, err
	}

	var names []string

	for name, partitions := range disks {
		if _, ok := partitions[layout.META]; ok {
			names = append(names, name)
		}
	}

	if len(names) == 0 {
		return System{}, ErrNone
	}

	slices.Sort(names)

	return System{Name: names[0], Partitions: disks[names[0]], Others: names[1:]}, nil
}

// On is the disk of that name, with what partitions it has.
func On(class, name string) (System, error) {
	disks, err := all(class)

	return System{Name: name, Partitions: disks[name]}, err
}

// Names lists for people the whole disks that a system can be on, with their sizes.
func Names(class string) ([]string, error) {
	entries, err := os.ReadDir(class)
	if err != nil {
		return nil, err
	}

	var names []string

	for _, e := range entries {
		// Real disks have a device; loop devices, RAM disks and the like have none, partitions have a number.
		_, noDevice := os.Stat(filepath.Join(class, e.Name(), "device"))
		_, noPartition := os.Stat(filepath.Join(class, e.Name(), "partition"))

		if n, err := size(class, e.Name()); noDevice == nil && noPartition != nil && err == nil && n > 0 {
			names = append(names, fmt.Sprintf("/dev/%s (%d MiB)", e.Name(), n>>20))
		}
	}

	if len(names) == 0 {
		names = []string{"none"}
	}

	return names, nil
}

// all reads the partitions of all disks, by their labels.
func all(class string) (map[string]map[string]Partition, error) {
	entries, err := os.ReadDir(class)
	if err != nil {
		return nil, err
	}

	disks := map[string]map[string]Partition{}

	for _, e := range entries {
		label, p, err := partition(filepath.Join(class, e.Name()))
		if err != nil || label == "" {
			continue // a whole disk, or one that has just gone
		}

		target, err := filepath.EvalSymlinks(filepath.Join(class, e.Name()))
		if err != nil {
			continue
		}

		disk := filepath.Base(filepath.Dir(target)) // a partition's directory lies in its disk's
		if disks[disk] == nil {
			disks[disk] = map[string]Partition{}
		}

		if _, twice := disks[disk][label]; !twice {
			disks[disk][label] = p
		}
	}

	return disks, nil
}

// partition reads a device's uevent file: KEY=value lines with DEVNAME, and PARTN and PARTNAME (the GPT name) of a partition.
func partition(dir string) (label string, p Partition, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "uevent"))
	if err != nil {
		return "", Partition{}, err
	}

	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")

		switch key {
		case "DEVNAME":
			p.Name = value
		case "PARTNAME":
			label = value
		case "PARTN":
			if p.Number, err = strconv.Atoi(value); err != nil {
				return "", Partition{}, fmt.Errorf("partition number of %s: %w", dir, err)
			}
		}
	}

	return label, p, nil
}

// size reads a block device's size in bytes from sysfs, which counts in units of 512 bytes whatever the sector size
// (Documentation/ABI/stable/sysfs-block).
func size(class, name string) (int64, error) { return number(filepath.Join(class, name, "size"), 512) }

func sectorSize(class, name string) (int64, error) {
	return number(filepath.Join(class, name, "queue/logical_block_size"), 1)
}

func number(file string, unit int64) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}

	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}

	return n * unit, nil
}
