package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/profiles/assembly"
	"github.com/talos-factory/talos-factory/signing"
	"github.com/talos-factory/talos-factory/signing/authenticode"
	"github.com/talos-factory/talos-factory/signing/pcr"
)

// signFlags say what an image is signed with.
type signFlags struct {
	keys   string
	files  keyFlags
	enroll string
}

func (f *signFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.keys, "keys", "", "sign with the set of keys in `DIR`, as factory keys generate makes it")
	f.files.register(flags)
	flags.StringVar(&f.enroll, "secure-boot-enroll", "", fmt.Sprintf("how an image for Secure Boot brings its keys to firmware: one of %q (default %q)", assembly.EnrollModes(), assembly.DefaultEnroll))
}

// open opens the keys, before anything is built.
func (f *signFlags) open(ctx context.Context, secureBoot bool) (*signing.Set, error) {
	if f.enroll != "" && !slices.Contains(assembly.EnrollModes(), f.enroll) {
		return nil, withHint(fmt.Errorf("cannot enroll keys by %q", f.enroll), "want one of %q", assembly.EnrollModes())
	}
	if f.enroll != "" && (f.keys == "" || !secureBoot) {
		return nil, withHint(errors.New("cannot enroll keys: that takes keys, and an image for Secure Boot"), "--keys DIR --secureboot --secure-boot-enroll %s", f.enroll)
	}
	if f.keys == "" {
		return nil, nil
	}
	set, err := f.files.openSet(ctx, f.keys)
	if err != nil {
		return nil, err
	}
	if set.UKI.Certificate() == nil {
		return nil, errors.New("cannot sign UKIs with a key that has no certificate")
	}
	for _, name := range []string{"PK", "KEK", "db"} {
		if secureBoot && len(set.Auth[name]) == 0 {
			return nil, withHint(fmt.Errorf("cannot make an image for Secure Boot: there is no %s.auth among the keys", name), "factory keys generate makes a whole set")
		}
	}
	return set, nil
}

// with makes the set what images of a store's blobs are signed with.
func (f *signFlags) with(set *signing.Set, src extent.Source) assembly.Keys {
	if set == nil {
		return assembly.Keys{}
	}
	mode := f.enroll
	if mode == "" {
		mode = assembly.DefaultEnroll
	}
	return assembly.Keys{
		Programs: programSigner{set.UKI, src}, Registers: predictor{set.PCR, src},
		Enrollment: &assembly.Enrollment{Mode: mode, Variables: set.Auth},
	}
}

// programSigner implements assembly.Signer.
type programSigner struct {
	key signing.Key
	src extent.Source
}

func (s programSigner) SignProgram(program *extent.Plan) (*extent.Plan, error) {
	return authenticode.Sign(program, s.src, s.key, s.key.Certificate())
}

// predictor implements assembly.Predictor. It signs the values of a machine that runs, and none of the phases before: what
// is sealed for them is not given out while the initramfs has the machine.
type predictor struct {
	key signing.Key
	src extent.Source
}

func (p predictor) PublicKey() ([]byte, error) { return pcr.PublicKey(p.key) }

func (p predictor) SignPCR(uki *extent.Plan) ([]byte, error) {
	r := uki.NewReader(p.src)
	defer r.Close()
	values, err := pcr.Measure(r, uki.Size())
	if err != nil {
		return nil, err
	}
	return pcr.Sign(values, p.key, pcr.Running)
}
