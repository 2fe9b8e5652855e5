package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/talos-factory/talos-factory/config/strict"
	"github.com/talos-factory/talos-factory/signing/authvar"
)

// The files of a set's folder. A set's document names other places.
const (
	SetFile         = "keys.yaml"
	ukiKeyFile      = "uki-signing-key.pem"
	ukiCertFile     = "uki-signing-cert.pem"
	pcrKeyFile      = "pcr-signing-key.pem"
	pcrPublicFile   = "pcr-signing-public.pem"
	cosignKeyFile   = "cosign.key"
	cosignPublic    = "cosign.pub"
	pkKeyFile       = "PK-key.pem"
	pkCertFile      = "PK-cert.pem"
	kekKeyFile      = "KEK-key.pem"
	kekCertFile     = "KEK-cert.pem"
	authFileSuffix  = ".auth"
	setDocumentText = `uki: unix:/run/uki-signer.sock
pcr: unix:/run/pcr-signer.sock
cosign: cosign.key`
)

// A Set is the keys of a release.
type Set struct {
	UKI    Key               // RSA with a certificate: what firmware starts
	PCR    Key               // RSA: the policy that unseals disks
	Cosign Key               // ECDSA P-256: images and files
	Auth   map[string][]byte // PK, KEK, db and dbx, as far as they are there: updates of firmware's variables
}

// ErrNoSet says that there are no keys where a set was looked for.
var ErrNoSet = errors.New("cannot find a set of keys")

// setDocument is keys.yaml: URIs, file paths being relative to its folder.
type setDocument struct {
	UKI    string `yaml:"uki"`
	PCR    string `yaml:"pcr"`
	Cosign string `yaml:"cosign"`
}

// OpenSet opens the set in a folder: the files that Generate writes, or the keys that the folder's keys.yaml names.
// uri may also be that document. All three keys must be there; the .auth files lie beside them.
func OpenSet(ctx context.Context, uri string, opts Options) (*Set, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(uri, "file:"), "//")
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s is neither a folder nor a file", ErrNoSet, uri)
	case err != nil:
		return nil, fmt.Errorf("opening keys: %w", err)
	}
	dir, document := path, filepath.Join(path, SetFile)
	if !info.IsDir() {
		dir, document = filepath.Dir(path), path
	}
	places, err := readSetDocument(document, info.IsDir())
	if err != nil {
		return nil, err
	}
	set := &Set{}
	for _, k := range []struct {
		name, uri string
		to        *Key
		fits      func(Key) error
	}{{"uki", places.UKI, &set.UKI, fitsUKI}, {"pcr", places.PCR, &set.PCR, fitsPCR}, {"cosign", places.Cosign, &set.Cosign, fitsCosign}} {
		if *k.to, err = Open(ctx, within(dir, k.uri), opts); err == nil {
			err = k.fits(*k.to)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && info.IsDir():
			return nil, fmt.Errorf("%w in %s: the %s key: %w", ErrNoSet, dir, k.name, err)
		case err != nil:
			return nil, fmt.Errorf("opening the %s key: %w", k.name, err)
		}
	}
	set.Auth, err = readAuth(dir)
	return set, err
}

// readSetDocument is what the document says, or without one the names that Generate gives.
func readSetDocument(path string, optional bool) (setDocument, error) {
	text, err := os.ReadFile(path)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return setDocument{ukiKeyFile, pcrKeyFile, cosignKeyFile}, nil
	}
	if err != nil {
		return setDocument{}, fmt.Errorf("reading set of keys: %w", err)
	}
	var d setDocument
	if err := strict.Decode(text, &d); err != nil {
		return d, fmt.Errorf("reading set of keys %s: %w", path, err)
	}
	if d.UKI == "" || d.PCR == "" || d.Cosign == "" {
		return d, fmt.Errorf("cannot use set of keys %s: want uki, pcr and cosign, such as\n%s", path, setDocumentText)
	}
	return d, nil
}

// within makes relative files those of the folder.
func within(dir, uri string) string {
	scheme, _, found := strings.Cut(uri, ":")
	if found && scheme != "file" && !strings.Contains(scheme, "/") {
		return uri
	}
	path := strings.TrimPrefix(strings.TrimPrefix(uri, "file:"), "//")
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return "file:" + path
}

func readAuth(dir string) (map[string][]byte, error) {
	auth := map[string][]byte{}
	for _, v := range []authvar.Variable{authvar.PK, authvar.KEK, authvar.DB, authvar.DBX} {
		path := filepath.Join(dir, v.Name+authFileSuffix)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading variable update: %w", err)
		}
		update, err := authvar.Parse(b)
		if err == nil {
			_, err = update.Lists()
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		auth[v.Name] = b
	}
	return auth, nil
}

func fitsUKI(k Key) error {
	if _, ok := k.Public().(*rsa.PublicKey); !ok {
		return fmt.Errorf("cannot sign for firmware with %s: want RSA", Algorithm(k.Public()))
	}
	if k.Certificate() == nil {
		return errors.New("cannot sign for firmware without the key's certificate: none lies beside it, and its URI names none (?certificate=FILE)")
	}
	return nil
}

func fitsPCR(k Key) error {
	if _, ok := k.Public().(*rsa.PublicKey); !ok {
		return fmt.Errorf("cannot sign PCR policies with %s: want RSA", Algorithm(k.Public()))
	}
	return nil
}

func fitsCosign(k Key) error {
	if public, ok := k.Public().(*ecdsa.PublicKey); !ok || public.Curve != elliptic.P256() {
		return fmt.Errorf("cannot sign images with %s: want ECDSA P-256", Algorithm(k.Public()))
	}
	return nil
}
