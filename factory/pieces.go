package factory

import (
	"encoding/json"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/splice"
)

// pieces keeps in the store what transforms made of blobs: one blob for each blob's pieces.
type pieces struct{ store *build.Store }

var _ splice.Cache = pieces{}

// pieceRecord is what the store remembers of pieces.
type pieceRecord struct {
	Blob build.Blob `json:"blob"`
	Note []byte     `json:"note"`
}

// Recall implements splice.Cache. The store remembers for good; so if pieces got lost, new ones are remembered as the
// next edition.
func (p pieces) Recall(transform string, in extent.Digest, make func(io.Writer) ([]byte, error)) (extent.Blob, []byte, error) {
	for edition := 1; ; edition++ {
		made := false
		text, err := p.store.Remember(fmt.Sprintf("%s, edition %d", transform, edition), build.Digest(in), func() ([]byte, error) {
			made = true
			record, err := p.put(make)
			if err != nil {
				return nil, err
			}
			return json.Marshal(record)
		})
		if err != nil {
			return extent.Blob{}, nil, err
		}
		var record pieceRecord
		if err := json.Unmarshal(text, &record); err != nil {
			return extent.Blob{}, nil, fmt.Errorf("reading what is remembered of %s: %w", transform, err)
		}
		if made || p.store.Has(record.Blob) {
			return extent.Blob{SHA256: record.Blob.Digest, Size: record.Blob.Size}, record.Note, nil
		}
	}
}

// put stores what make writes while it writes it.
func (p pieces) put(make func(io.Writer) ([]byte, error)) (record pieceRecord, err error) {
	r, w := io.Pipe()
	var g errgroup.Group
	g.Go(func() (err error) {
		record.Blob, err = p.store.Put(r)
		r.CloseWithError(err) // so that make ends, too, if the disk is full
		return err
	})
	record.Note, err = make(w)
	w.CloseWithError(err)               // nil is the end of the file
	if stored := g.Wait(); err == nil { // else the store's error comes from make's, or is the same
		err = stored
	}
	return record, err
}
