package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/xi2/xz"
)

var (
	// ErrGone is returned (wrapped) when every mirror answered, and none has the file.
	ErrGone = errors.New("not on any mirror")
	// ErrNetwork is returned (wrapped) when no mirror could be asked.
	ErrNetwork = errors.New("cannot reach a mirror")
)

// Archive fetches files from mirrors. It trusts nothing it gets: its methods verify or say that they do not.
type Archive struct {
	Mirrors Mirrors
	Client  *http.Client  // nil: http.DefaultClient
	Pause   time.Duration // before the first retry, doubled for each next; 0: one second
	Stall   time.Duration // how long a mirror may send nothing; 0: one minute
}

const tries = 4

// Open asks the mirrors of the archive in turn for a file below its root. What comes is not verified. A
// mirror's transient answers (5xx, 429, a broken connection) are tried again a few times.
func (a *Archive) Open(ctx context.Context, archive, file string) (io.ReadCloser, error) {
	bases := a.Mirrors[archive]
	if len(bases) == 0 {
		return nil, fmt.Errorf("%w: no mirror of %s is configured", ErrNetwork, archive)
	}
	var gone, unreachable error
	for _, base := range bases {
		url := base + "/" + file
		body, err := a.get(ctx, url, 0)
		switch {
		case err == nil:
			return &resumed{ctx: ctx, a: a, url: url, body: body}, nil
		case errors.Is(err, ErrGone):
			gone = err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			unreachable = err
		}
	}
	if unreachable != nil {
		return nil, fmt.Errorf("%w: %w", ErrNetwork, unreachable)
	}
	return nil, gone
}

func (a *Archive) get(ctx context.Context, url string, off int64) (io.ReadCloser, error) {
	pause := a.Pause
	if pause == 0 {
		pause = time.Second
	}
	for try := 1; ; try++ {
		body, again, err := a.getOnce(ctx, url, off)
		if err == nil || !again || try == tries {
			return body, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause *= 2
	}
}

func (a *Archive) getOnce(ctx context.Context, url string, off int64) (body io.ReadCloser, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, false, err
	}
	if off > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", off))
	}
	client := a.Client
	if client == nil {
		client = http.DefaultClient
	}
	stall := a.Stall
	if stall == 0 {
		stall = time.Minute
	}
	timer := time.AfterFunc(stall, cancel)
	resp, err := client.Do(req)
	timer.Stop()
	if err != nil {
		// Refused connections and unknown names do not mend themselves in seconds.
		return nil, !isRefusal(err), err
	}
	switch {
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusPartialContent:
		if err := atOffset(resp, off); err != nil {
			return nil, true, errors.Join(err, resp.Body.Close())
		}
		return &guarded{resp.Body, stall, cancel}, false, nil
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusGone:
		err = fmt.Errorf("%w: %s", ErrGone, url)
	default:
		again = resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		err = fmt.Errorf("getting %s: %s", url, resp.Status)
	}
	return nil, again, errors.Join(err, resp.Body.Close())
}

// Read gets a whole file of at most max bytes. Not verified.
func (a *Archive) Read(ctx context.Context, archive, file string, max int64) ([]byte, error) {
	body, err := a.Open(ctx, archive, file)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, max+1))
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > max {
		return nil, fmt.Errorf("cannot read %s/%s: larger than %d bytes", archive, file, max)
	}
	return data, nil
}

// SplitSuite divides "debian/trixie" into the archive and its suite.
func SplitSuite(suite string) (archive, name string) {
	archive, name, _ = strings.Cut(suite, "/")
	return archive, name
}

// Release gets and verifies a suite's InRelease.
func (a *Archive) Release(ctx context.Context, suite string, keyring openpgp.EntityList) (*Release, error) {
	archive, name := SplitSuite(suite)
	data, err := a.Read(ctx, archive, "dists/"+name+"/InRelease", 8<<20)
	if err != nil {
		return nil, err
	}
	r, err := ParseInRelease(data, keyring)
	if err != nil {
		return nil, fmt.Errorf("cannot trust the InRelease of %s (sha256 %x): %w", suite, sha256.Sum256(data), err)
	}
	if r.Codename != name {
		return nil, fmt.Errorf("cannot use the InRelease of %s: it is for %q", suite, r.Codename)
	}
	return r, nil
}

// Packages gets the index of component main for the architecture, verified against the release.
func (a *Archive) Packages(ctx context.Context, suite string, r *Release, arch string) ([]*Package, IndexFile, error) {
	archive, name := SplitSuite(suite)
	file := "main/binary-" + arch + "/Packages.xz"
	want, ok := r.Files[file]
	if !ok {
		return nil, want, fmt.Errorf("cannot use %s: its InRelease lists no %s", suite, file)
	}
	// By-hash first: the plain name may already be of the next release (or the hash gone with the last one).
	dir := path.Dir("dists/" + name + "/" + file)
	data, err := a.Read(ctx, archive, dir+"/by-hash/SHA256/"+want.SHA256, want.Size)
	if errors.Is(err, ErrGone) {
		data, err = a.Read(ctx, archive, "dists/"+name+"/"+file, want.Size)
	}
	if err != nil {
		return nil, want, err
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != want.SHA256 {
		return nil, want, fmt.Errorf("cannot trust %s of %s: sha256 is %x, expected %s", file, suite, got, want.SHA256)
	}
	in, err := xz.NewReader(bytes.NewReader(data), 1<<26)
	if err != nil {
		return nil, want, fmt.Errorf("reading %s of %s: %w", file, suite, err)
	}
	packages, err := ParsePackages(in)
	if err != nil {
		return nil, want, fmt.Errorf("reading %s of %s: %w", file, suite, err)
	}
	for _, p := range packages {
		p.Suite = suite
	}
	return packages, want, nil
}
