package fat

import (
	"encoding/binary"
	"fmt"

	"github.com/talos-factory/talos-factory/format/extent"
)

// endOfChain marks a file's last cluster (specification 1.03, "FAT Data Structure").
const endOfChain = 0x0FFFFFFF

// chain is a run of clusters that belong to one file or directory.
type chain struct{ first, n uint32 }

// allocator gives out clusters from the first on, each file in one run.
type allocator struct {
	geometry
	next   uint32 // the first cluster never given out
	chains []chain
}

// place gives clusters to the directories and small files first and to the aligned files behind them, each in
// the order of the tree, so that no small thing sits between two large ones.
func (a *allocator) place(root *node) error {
	var err error
	take := func(n *node, bytes, align int64) {
		if err == nil {
			n.clusters = uint32((bytes + a.clusterBytes() - 1) / a.clusterBytes())
			n.cluster, err = a.take(n.clusters, align)
		}
	}
	var need int64
	root.walk(func(n *node) {
		need += n.bytes() + a.clusterBytes()
		if n.bytes() < Align {
			take(n, n.bytes(), a.clusterBytes())
		}
	})
	root.walk(func(n *node) {
		if n.bytes() >= Align {
			take(n, n.bytes(), Align)
		}
	})
	if err != nil {
		have := a.clusters * a.clusterBytes()
		return fmt.Errorf("placing files: %w: about %d bytes are needed, %d are there", err, max(need, have+1), have)
	}
	return nil
}

// take gives out n clusters in one run whose offset is a multiple of align.
func (a *allocator) take(n uint32, align int64) (uint32, error) {
	if n == 0 {
		return 0, nil
	}
	first := a.next
	for a.offset(first)%align != 0 {
		first++
	}
	if int64(first)-2+int64(n) > a.clusters {
		return 0, ErrNoSpace
	}
	a.next = first + n
	a.chains = append(a.chains, chain{first, n})
	return first, nil
}

// hint is where FSInfo says to look for a free cluster; all ones means that nobody knows.
func (a *allocator) hint() uint32 {
	if int64(a.next)-2 >= a.clusters {
		return 0xFFFFFFFF
	}
	return a.next
}

// used counts the clusters given out.
func (a *allocator) used() int64 {
	var n int64
	for _, c := range a.chains {
		n += int64(c.n)
	}
	return n
}

// putTables places both tables, as far as clusters are in use; the rest is zeros, which means free.
func (a *allocator) putTables(p *extent.Plan) {
	table := make([]byte, 4*a.next)
	put := func(cluster, value uint32) { binary.LittleEndian.PutUint32(table[4*cluster:], value) }
	put(0, 0x0FFFFF00|fixedDisk)
	put(1, endOfChain) // its two high bits say: cleanly unmounted, no read errors
	for _, c := range a.chains {
		for i := c.first; i < c.first+c.n-1; i++ {
			put(i, i+1)
		}
		put(c.first+c.n-1, endOfChain)
	}
	p.PutBytes(a.fatOff(0), table)
	p.PutBytes(a.fatOff(1), table)
}
