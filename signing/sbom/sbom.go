package sbom

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/signing/purl"
)

// ourLicence is that of this repository's LICENSE.
const ourLicence = "Apache-2.0"

// bootParts are what images have beside the root: packages of the lock, whose licences no recipe says (they are those of
// the packages' debian/copyright).
var bootParts = []struct{ deb, licence string }{
	{"grub-pc-bin", "GPL-3.0-or-later"},
	{"linux-source-6.12", "GPL-2.0-only WITH Linux-syscall-note"},
	{"systemd-boot-efi", "LGPL-2.1-or-later"},
}

// OS is what the artifacts of a release have in common.
type OS struct {
	checkout      string
	release       *factory.Release
	recipes       *pkgs.Recipes     // nil for a release that was made elsewhere
	owners        map[string]string // of paths: names of items
	files         map[string]Packed
	packages      map[string]item // by name
	parts         []string        // names of packages that every artifact has
	members       map[string][]entry
	relationships []relationship
}

// Subject is the artifact that a document is about.
type Subject struct {
	Name       string
	SHA256     [32]byte
	Extensions []factory.UsedExtension
}

// Describe puts together what is in a release of the checkout. files is what ReadRoot read of its root.
func Describe(checkout string, release *factory.Release, recipes *pkgs.Recipes, files map[string]Packed) (*OS, error) {
	owners, err := Owners(release, recipes)
	if err != nil {
		return nil, err
	}
	o := newOS(release, files)
	o.checkout, o.recipes, o.owners, o.parts = checkout, recipes, owners, []string{Ours}
	ours := newItem(Ours, Ours, release.Version, ourLicence)
	ours.Purpose = "OPERATING-SYSTEM"
	o.packages[Ours] = ours
	for i := range recipes.Recipes {
		if err := o.addRecipe(&recipes.Recipes[i]); err != nil {
			return nil, fmt.Errorf("describing recipe %s: %w", recipes.Recipes[i].Name, err)
		}
	}
	for _, part := range bootParts {
		if _, err := o.addDeb(part.deb, part.licence); err != nil {
			return nil, err
		}
		o.parts = append(o.parts, "deb "+part.deb)
	}
	return o, o.addFiles()
}

// DescribeParts says what is in a release that was made elsewhere and brings digests, no recipes: its parts, the files of the root that is
// one of them, and the modules in its programs. Where the files are from, and their licences, is not asserted.
func DescribeParts(release *factory.Release, d factory.Description, root string, files map[string]Packed) (*OS, error) {
	o := newOS(release, files)
	for _, name := range slices.Sorted(maps.Keys(d.Parts)) {
		p := newItem("part-"+name, name, d.Version, "").sum(d.Parts[name].Digest.String())
		o.packages[name] = p
		o.parts = append(o.parts, name)
	}
	if _, ok := o.packages[root]; !ok {
		return nil, fmt.Errorf("cannot describe the release: it has no part %s", root)
	}
	o.owners = map[string]string{}
	for path := range files {
		o.owners[path] = root
	}
	return o, o.addFiles()
}

func newOS(release *factory.Release, files map[string]Packed) *OS {
	return &OS{release: release, files: files, packages: map[string]item{}, members: map[string][]entry{}}
}

func (o *OS) addFiles() error {
	for _, path := range slices.Sorted(maps.Keys(o.files)) {
		if err := o.addFile(path); err != nil {
			return fmt.Errorf("describing %s: %w", path, err)
		}
	}
	return nil
}

func (o *OS) relate(from, kind, to string) {
	o.relationships = append(o.relationships, relationship{from, kind, to})
}

// addRecipe describes what a recipe brings into the root, made from packages of the archive or built from modules.
func (o *OS) addRecipe(r *pkgs.Recipe) error {
	p := newItem("recipe-"+r.Name, r.Name, "", r.Licence)
	for _, name := range r.Packages {
		licence := ""
		if len(r.Packages) == 1 {
			licence = r.Licence
		}
		deb, err := o.addDeb(name, licence)
		if err != nil {
			return err
		}
		o.relate(p.ID, "GENERATED_FROM", deb.ID)
		if len(r.Packages) == 1 {
			p.Version = deb.Version
		}
	}
	o.packages[r.Name] = p
	o.relate(o.packages[Ours].ID, "CONTAINS", p.ID)
	return nil
}

func (o *OS) addDeb(name, licence string) (item, error) {
	locked, err := o.release.Lock().Package(name, o.release.Arch)
	if err != nil {
		return item{}, err
	}
	p := newItem("deb-"+name, name, locked.Version, licence).at(purl.Debian(locked)).sum(locked.SHA256.String())
	p.FileName = locked.Path[strings.LastIndexByte(locked.Path, '/')+1:]
	p.Comment = "source package " + locked.Source + " of " + locked.Suite
	o.packages["deb "+name] = p
	return p, nil
}

func (o *OS) addFile(path string) error {
	owner, ok := o.owners[path]
	if !ok {
		return fmt.Errorf("cannot tell what package it belongs to: the root's manifest has no such file")
	}
	packed, p := o.files[path], o.packages[owner]
	f := entry{
		ID: identifier("File", strings.TrimPrefix(path, "/")), Name: "." + path,
		Checksums:        []checksum{{"SHA1", packed.SHA1}, {"SHA256", packed.SHA256}},
		LicenceConcluded: p.LicenceDeclared, LicenceInFile: []string{noAssertion}, Copyright: noAssertion,
	}
	o.members[owner] = append(o.members[owner], f)
	o.relate(p.ID, "CONTAINS", f.ID)
	if packed.Go == "" {
		return nil
	}
	return o.addProgram(owner, f.ID, packed)
}

// addProgram describes what was linked into a Go program.
func (o *OS) addProgram(owner, id string, packed Packed) error {
	var pinned map[Module]string
	if o.recipes != nil {
		var err error
		if pinned, err = o.pins(owner); err != nil {
			return err
		}
	}
	modules := packed.Modules
	if o.recipes != nil && owner != Ours && packed.Main.Version != "(devel)" && packed.Main.Version != "" {
		modules = append(slices.Clip(modules), packed.Main)
		if p := o.packages[owner]; p.Version == "" {
			p.Version = packed.Main.Version
			o.packages[owner] = p.at(purl.Go(packed.Main.Path, packed.Main.Version))
		}
	}
	for _, m := range modules {
		sum, ok := pinned[m]
		if !ok && o.recipes != nil {
			return fmt.Errorf("cannot vouch for module %s %s in it: no go.sum pins that", m.Path, m.Version)
		}
		p := newItem("go-"+m.Path+"-"+m.Version, m.Path, m.Version, "").at(purl.Go(m.Path, m.Version))
		if ok {
			p.Comment = "go.sum " + sum
		}
		o.packages["go "+m.Path+" "+m.Version] = p
		o.relate(id, "STATIC_LINK", p.ID)
	}
	return o.addToolchain(id, packed.Go)
}

// addToolchain names the toolchain, whose standard library is in every program. It is the locked one.
func (o *OS) addToolchain(id, version string) error {
	for _, t := range o.release.Lock().Go {
		if strings.HasPrefix(t.Version, "v0.0.1-"+version+".") && strings.HasSuffix(t.Version, "-"+o.release.Arch) {
			p := newItem("go-toolchain", "Go", strings.TrimPrefix(version, "go"), "BSD-3-Clause").at(purl.Go("stdlib", strings.TrimPrefix(version, "go"))).sum(t.SHA256.String())
			p.Comment = "module " + t.Module + " " + t.Version
			o.packages["go toolchain"] = p
			o.relate(id, "STATIC_LINK", p.ID)
			return nil
		}
	}
	return fmt.Errorf("cannot vouch for its compiler %s: the lock has no such toolchain", version)
}

// Document is the SPDX document of one artifact. Its time is the lock's date, and its namespace the build and the artifact's digest,
// so that the same artifact has the same document.
func (o *OS) Document(s Subject) ([]byte, error) {
	sum := hex.EncodeToString(s.SHA256[:])
	artifact := newItem("artifact", s.Name, o.release.Version, "").sum(sum)
	artifact.FileName, artifact.Comment = s.Name, "build "+o.release.BuildID
	d := document{
		ID: documentID, Version: spdxVersion, DataLicence: dataLicence, Name: s.Name,
		Namespace:     "https://github.com/talos-factory/talos-factory/spdx/" + o.release.BuildID + "/" + sum,
		Packages:      []item{artifact},
		Relationships: slices.Clone(o.relationships),
	}
	relate := func(from, kind, to string) { d.Relationships = append(d.Relationships, relationship{from, kind, to}) }
	relate(documentID, "DESCRIBES", artifact.ID)
	for _, part := range o.parts {
		relate(artifact.ID, "CONTAINS", o.packages[part].ID)
	}
	for _, e := range s.Extensions {
		p := newItem("extension-"+e.Name, e.Name, e.Version, "")
		p.Comment = "system extension " + e.Source + ", " + e.Digest
		if digest, err := build.ParseDigest(strings.TrimPrefix(e.Digest, "sha256:")); err == nil {
			p = p.sum(digest.String())
		}
		d.Packages = append(d.Packages, p)
		relate(artifact.ID, "CONTAINS", p.ID)
	}
	for _, name := range slices.Sorted(maps.Keys(o.packages)) {
		p := o.packages[name]
		if members := o.members[name]; len(members) > 0 {
			p.Analyzed, p.Code = true, verificationCode(members)
			d.Files = append(d.Files, members...)
		}
		d.Packages = append(d.Packages, p)
	}
	text, err := d.marshal(o.release.Lock().Date())
	if err != nil {
		return nil, fmt.Errorf("writing SBOM of %s: %w", s.Name, err)
	}
	return text, nil
}
