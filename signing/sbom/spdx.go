// Package sbom says what is in an artifact, as an SPDX 2.3 document: every file of the machine's root with the package it comes from and
// its licence, the kernel, the boot loaders, and the modules linked into each Go program.
//
// Packages, versions and licences come from the lock and the recipes. The root's squashfs is read for two things that no lock can
// say: the hashes of files, and which of go.mod's modules were linked. A file that belongs to no package is an error. The package guesses
// nothing from file names or contents and signs nothing.
package sbom

import (
	"bytes"
	"crypto/sha1" // SPDX 2.3, 8.4: a file has one, whatever else it has
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Words of the SPDX specification 2.3 (spdx.github.io/spdx-spec/v2.3).
const (
	spdxVersion = "SPDX-2.3"
	dataLicence = "CC0-1.0" // 6.2: the only one
	documentID  = "SPDXRef-DOCUMENT"
	noAssertion = "NOASSERTION"
)

type document struct {
	ID            string         `json:"SPDXID"`
	Version       string         `json:"spdxVersion"`
	DataLicence   string         `json:"dataLicense"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []item         `json:"packages"`
	Files         []entry        `json:"files"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// item is a package (section 7).
type item struct {
	ID               string        `json:"SPDXID"`
	Name             string        `json:"name"`
	Version          string        `json:"versionInfo,omitempty"`
	FileName         string        `json:"packageFileName,omitempty"`
	Purpose          string        `json:"primaryPackagePurpose,omitempty"`
	Download         string        `json:"downloadLocation"`
	Analyzed         bool          `json:"filesAnalyzed"`
	Code             *code         `json:"packageVerificationCode,omitempty"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	LicenceConcluded string        `json:"licenseConcluded"`
	LicenceDeclared  string        `json:"licenseDeclared"`
	Copyright        string        `json:"copyrightText"`
	Comment          string        `json:"comment,omitempty"`
	References       []externalRef `json:"externalRefs,omitempty"`
}

type code struct {
	Value string `json:"packageVerificationCodeValue"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

// entry is a file (section 8).
type entry struct {
	ID               string     `json:"SPDXID"`
	Name             string     `json:"fileName"`
	Checksums        []checksum `json:"checksums"`
	LicenceConcluded string     `json:"licenseConcluded"`
	LicenceInFile    []string   `json:"licenseInfoInFiles"`
	Copyright        string     `json:"copyrightText"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// newItem is a package of which no more is known than its name, version and licence.
func newItem(id, name, version, licence string) item {
	if licence == "" {
		licence = noAssertion
	}
	return item{
		ID: identifier("Package", id), Name: name, Version: version, Download: noAssertion,
		LicenceConcluded: noAssertion, LicenceDeclared: licence, Copyright: noAssertion,
	}
}

func (i item) at(purl string) item {
	i.References = append(slices.Clip(i.References), externalRef{"PACKAGE-MANAGER", "purl", purl})
	return i
}

func (i item) sum(sha256 string) item {
	i.Checksums = append(slices.Clip(i.Checksums), checksum{"SHA256", sha256})
	return i
}

// identifier makes an SPDX identifier (3.2: letters, digits, "." and "-") of a name. Other bytes become their number, so
// that two names stay two.
func identifier(kind, name string) string {
	var b strings.Builder
	b.WriteString("SPDXRef-" + kind + "-")
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-':
			b.WriteByte(c)
		case c == '/':
			b.WriteString("--")
		default:
			b.WriteString("-x" + hex.EncodeToString([]byte{c}) + "-")
		}
	}
	return b.String()
}

// verificationCode is the hash over the SHA-1s of a package's files (7.9).
func verificationCode(files []entry) *code {
	var sums []string
	for _, f := range files {
		sums = append(sums, f.Checksums[0].Value)
	}
	slices.Sort(sums)
	sum := sha1.Sum([]byte(strings.Join(sums, "")))
	return &code{hex.EncodeToString(sum[:])}
}

// marshal writes the document in one order, whatever order it was put together in.
func (d document) marshal(created time.Time) ([]byte, error) {
	d.Creation = creation{created.UTC().Format("2006-01-02T15:04:05Z"), []string{"Tool: talos-factory"}}
	slices.SortFunc(d.Packages, func(a, b item) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(d.Files, func(a, b entry) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(d.Relationships, func(a, b relationship) int {
		return strings.Compare(a.From+" "+a.Kind+" "+a.To, b.From+" "+b.Kind+" "+b.To)
	})
	d.Relationships = slices.Compact(d.Relationships)
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	err := e.Encode(d)
	return text.Bytes(), err
}
