package build

import (
	"errors"
	"fmt"
	"os"
)

// Remember returns what make returned for the same transform of the same input, now or earlier. It is for
// small facts that cost a read of a whole blob, such as another hash of it. The transform's
// name must carry its version, and make must depend on nothing but the input.
func (s *Store) Remember(transform string, in Digest, make func() ([]byte, error)) ([]byte, error) {
	path := s.entry("memo", Sum(fmt.Appendf(nil, "%s\n%s", in, transform)))
	sealed, err := os.ReadFile(path)
	if err == nil {
		if content, ok := unseal(sealed); ok {
			touch(path)
			return content, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	content, err := make()
	if err != nil {
		return nil, err
	}
	return content, s.writeFile(path, seal(content))
}
