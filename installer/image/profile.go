package image

import (
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/format/extent"
)

// sourceURL is where people find what an installer was built from.
const sourceURL = "https://github.com/talos-factory/talos-factory"

// Of packs the installer of a profile.
func Of(i factory.Installer) (*Image, error) {
	return New(Content{
		Parts: i.Parts, Boot: i.Boot, UKI: i.UKI, BuildID: i.BuildID, Platform: i.Profile.Platform, BIOS: i.BIOS, Signed: i.Signed,
		Program: i.Program, Created: i.Created, SourceURL: sourceURL,
	}, Tools{Source: i.Source, Sum: i.Sum, Gzip: i.Gzip})
}

// Pack is a factory.Packer: it makes one file that docker load takes.
func Pack(i factory.Installer) (*extent.Plan, error) {
	img, err := Of(i)
	if err != nil {
		return nil, err
	}
	return img.Archive()
}
