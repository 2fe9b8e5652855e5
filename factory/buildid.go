package factory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/talos-factory/talos-factory/build"
)

// buildID hashes what a release's kernel and root are made of: the version, the manifest, and for each step its command,
// environment, trees and inputs, with the step that makes an input in place of its bytes. So it is known before
// anything is built, and is the same wherever the same inputs are.
func buildID(version, manifest string, steps []*build.Step) (string, error) {
	ids := map[*build.Step]string{}
	total := []string{"build ID 1", version, manifest}
	err := build.Walk(steps, func(s *build.Step) error {
		id, err := stepID(s, ids)
		if err != nil {
			return fmt.Errorf("hashing inputs of %s: %w", s.Name, err)
		}
		ids[s] = id
		total = append(total, id)
		return nil
	})
	if err != nil {
		return "", err
	}
	return digest(total)[:32], nil
}

func stepID(s *build.Step, ids map[*build.Step]string) (string, error) {
	what := []any{s.Argv, s.Env, s.Dir, s.Host, s.Target, s.Outputs}
	for _, mount := range s.Mounts {
		what = append(what, mount.Path, mount.Tree.ID())
	}
	for _, input := range s.Inputs {
		from := ""
		switch {
		case input.Fetch != nil:
			from = input.Fetch.Blob.Digest.String()
		case input.Output != nil:
			from = ids[input.Output.Step] + " " + input.Output.Name
		case input.HostFile != "":
			text, err := os.ReadFile(input.HostFile)
			if err != nil {
				return "", err
			}
			from = build.Sum(text).String()
		default:
			from = build.Sum(input.Bytes).String()
		}
		what = append(what, input.Path, input.Executable, from)
	}
	return digest(what), nil
}

func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("internal error: " + err.Error()) // strings, booleans and digests have a JSON form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
