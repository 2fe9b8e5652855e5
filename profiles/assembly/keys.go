package assembly

import (
	"fmt"
	"io"
	"slices"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/fat"
	"github.com/talos-factory/talos-factory/format/uki"
)

// Signer signs an EFI program for Secure Boot. What it returns is the program with a signature.
type Signer interface {
	SignProgram(program *extent.Plan) (*extent.Plan, error)
}

// Predictor signs what PCR 11 of a machine will be when it has started a UKI.
type Predictor interface {
	// PublicKey is what goes into the UKI for the machine to find the predictions by: PEM.
	PublicKey() ([]byte, error)
	// SignPCR returns the predictions for a UKI that has everything but them: JSON.
	SignPCR(uki *extent.Plan) ([]byte, error)
}

// Keys are what images are signed with. Without any, nothing is.
type Keys struct {
	Programs   Signer    // or nil
	Registers  Predictor // or nil
	Enrollment *Enrollment
}

// Enrollment is keys that systemd-boot offers to firmware in setup mode (systemd-boot(7), loader.conf(5)).
type Enrollment struct {
	Mode      string            // one of EnrollModes
	Variables map[string][]byte // signed updates of PK, KEK and db
}

// EnrollModes are the values of secure-boot-enroll, the safest first: never; when a person chooses it in the menu; by itself in a virtual
// machine; by itself anywhere, though firmware that needs other keys for its own drivers may not start again.
func EnrollModes() []string { return []string{"off", "manual", "if-safe", "force"} }

// DefaultEnroll is the mode of who says nothing.
const DefaultEnroll = "if-safe"

// loaderFiles are what systemd-boot reads beside the UKIs.
func loaderFiles(e *Enrollment) ([]fat.File, error) {
	if e == nil {
		return []fat.File{{Path: "loader/loader.conf", Content: extent.FromBytes([]byte(loaderConf))}}, nil
	}
	if !slices.Contains(EnrollModes(), e.Mode) {
		return nil, fmt.Errorf("cannot enroll keys by %q: want one of %q", e.Mode, EnrollModes())
	}
	files := []fat.File{{Path: "loader/loader.conf", Content: extent.FromBytes([]byte(loaderConf + "secure-boot-enroll " + e.Mode + "\n"))}}
	for _, name := range []string{"PK", "KEK", "db"} { // systemd-boot takes no set that lacks one
		if len(e.Variables[name]) == 0 {
			return nil, fmt.Errorf("cannot enroll keys without %s.auth", name)
		}
		files = append(files, fat.File{Path: "loader/keys/auto/" + name + ".auth", Content: extent.FromBytes(e.Variables[name])})
	}
	return files, nil
}

// SignBoot returns the parts with a signed boot loader.
func (k Keys) SignBoot(p Parts) (Parts, error) {
	if k.Programs == nil {
		return p, nil
	}
	plan, err := k.Programs.SignProgram(extent.FromBytes(p.SystemdBoot))
	if err != nil {
		return p, fmt.Errorf("signing systemd-boot: %w", err)
	}
	p.SystemdBoot, err = io.ReadAll(plan.NewReader(nil))
	return p, err
}

// UKI plans the unified kernel image, with predictions and a signature if there are keys for them. Signing reads all of it.
func (k Keys) UKI(p Parts, b Boot) (*extent.Plan, error) {
	image, err := newUKI(p, b)
	if err != nil {
		return nil, err
	}
	if k.Registers != nil {
		if err := k.predict(&image); err != nil {
			return nil, fmt.Errorf("signing PCR predictions: %w", err)
		}
	}
	plan, err := image.Plan()
	if err != nil || k.Programs == nil {
		return plan, err
	}
	if plan, err = k.Programs.SignProgram(plan); err != nil {
		return nil, fmt.Errorf("signing UKI: %w", err)
	}
	return plan, nil
}

func (k Keys) predict(image *uki.Image) (err error) {
	if image.PCRPublicKey, err = k.Registers.PublicKey(); err != nil {
		return err
	}
	plan, err := image.Plan()
	if err != nil {
		return err
	}
	image.PCRSignature, err = k.Registers.SignPCR(plan)
	return err
}
