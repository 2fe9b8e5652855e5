package profiles

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/config/strict"
)

// Platform is a row of the table of platforms: what an image for it has to be.
type Platform struct {
	Name        string   `yaml:"name"`
	For         string   `yaml:"for"`
	Platform    string   `yaml:"platform"` // what the machine is told, where that is not the name
	DiskSize    Size     `yaml:"diskSize"`
	SectorSize  int      `yaml:"sectorSize"`
	DiskFormat  string   `yaml:"diskFormat"`
	Subformat   string   `yaml:"subformat"`
	ClusterSize Size     `yaml:"clusterSize"`
	Compression string   `yaml:"compression"`
	SecureBoot  bool     `yaml:"secureboot"` // whether its firmware can be had with our keys
	KernelArgs  []string `yaml:"kernelArgs"`
}

//go:embed platforms.yaml
var platformTable []byte

// Platforms reads the table.
func Platforms() ([]Platform, error) {
	var rows []Platform
	if err := strict.Decode(platformTable, &rows); err != nil {
		return nil, fmt.Errorf("reading table of platforms: %w", err)
	}
	for i := range rows {
		row := &rows[i]
		if row.Platform == "" {
			row.Platform = row.Name
		}
		if row.SectorSize == 0 {
			row.SectorSize = 512
		}
		if row.DiskFormat == "" {
			row.DiskFormat = Raw
		}
		if row.Compression == "" {
			row.Compression = None
		}
	}
	return rows, nil
}

// findPlatform returns the first row whose machines are told that they are on the platform.
func findPlatform(name string) (Platform, error) {
	rows, err := Platforms()
	if err != nil {
		return Platform{}, err
	}
	var names []string
	for _, row := range rows {
		if row.Platform == name {
			return row, nil
		}
		if !slices.Contains(names, row.Platform) {
			names = append(names, row.Platform)
		}
	}
	return Platform{}, fmt.Errorf("unknown platform %q%s (there is: %s)", name, meant(name, names), strings.Join(names, ", "))
}

// meant guesses what a wrong name should have been.
func meant(wrong string, known []string) string {
	if near := strict.Nearest(wrong, known); near != "" {
		return fmt.Sprintf(", did you mean %s?", near)
	}
	return ""
}
