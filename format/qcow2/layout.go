package qcow2

import "github.com/talos-factory/talos-factory/format/extent"

// Reference counts are 1<<order bits wide (refcount_order).
const (
	wideCounts   = 4 // 16 bits
	narrowCounts = 0 // 1 bit: a cluster is used or it is not
)

const entrySize = 8 // bytes of an entry of the L1, L2 and refcount tables

// run is a stretch of guest clusters that are all allocated, and follow each other in the image too.
type run struct {
	guest, n int64 // first cluster and how many
	host     int64
	blob     bool // some of it is a blob's
}

// layout says which cluster of the image is what. The parts follow each other as the fields do; all but cluster are
// in clusters.
type layout struct {
	cluster int64 // bytes
	order   int   // refcount_order

	countTable  int64 // start and length of the refcount table, behind the header
	countTables int64
	countBlocks int64 // how many refcount blocks follow it
	l1          int64 // start of the L1 table
	l1Entries   int64
	l2          int64   // start of the first L2 table
	l2Tables    []int64 // which entries of L1 have one
	runs        []run
	clusters    int64 // of the whole image
}

func newLayout(extents []extent.Extent, diskSize, cluster int64, order int) *layout {
	l := &layout{cluster: cluster, order: order, countTable: 1, countTables: 1, countBlocks: 1}
	l.l1Entries = ceil(ceil(diskSize, cluster), l.perTable())
	l.addRuns(extents)
	l.addL2()
	for { // the counts count themselves: a few rounds
		l.place()
		blocks := ceil(l.clusters, cluster*8>>order)
		tables := ceil(blocks*entrySize, cluster)
		if blocks <= l.countBlocks && tables <= l.countTables {
			return l
		}
		l.countBlocks, l.countTables = max(blocks, l.countBlocks), max(tables, l.countTables)
	}
}

// perTable is how many guest clusters an L2 table maps.
func (l *layout) perTable() int64 { return l.cluster / entrySize }

func (l *layout) addRuns(extents []extent.Extent) {
	for _, e := range extents {
		first, end := e.Off/l.cluster, ceil(e.Off+e.Len, l.cluster)
		last := len(l.runs) - 1
		if last < 0 || l.runs[last].guest+l.runs[last].n < first {
			l.runs = append(l.runs, run{guest: first})
			last++
		}
		r := &l.runs[last]
		r.n = end - r.guest
		r.blob = r.blob || e.Literal == nil
	}
}

func (l *layout) addL2() {
	next := int64(0)
	for _, r := range l.runs {
		for t := max(next, r.guest/l.perTable()); t <= (r.guest+r.n-1)/l.perTable(); t++ {
			l.l2Tables = append(l.l2Tables, t)
			next = t + 1
		}
	}
}

// place gives everything its place, with as many clusters for reference counts as the layout has now. Runs with
// blobs keep their offset modulo blobAlign; clusters skipped for it are free, and so are holes in the file.
func (l *layout) place() {
	l.l1 = l.countTable + l.countTables + l.countBlocks
	l.l2 = l.l1 + ceil(l.l1Entries*entrySize, l.cluster)
	next := l.l2 + int64(len(l.l2Tables))
	unit := max(1, blobAlign/l.cluster)
	for i := range l.runs {
		r := &l.runs[i]
		if r.blob {
			next += ((r.guest-next)%unit + unit) % unit
		}
		r.host = next
		next += r.n
	}
	l.clusters = next
}

// tableBytes is how many literal bytes putTables plans.
func (l *layout) tableBytes() int64 {
	n := headerSize + (l.countBlocks+int64(len(l.l2Tables)))*entrySize + l.countBytes()
	for _, r := range l.runs {
		n += r.n * entrySize
	}
	return n
}

// countBytes is how long all reference counts are.
func (l *layout) countBytes() int64 { return ceil(l.clusters<<l.order, 8) }

// putContent places the raw disk's extents, each whole.
func (l *layout) putContent(p *extent.Plan, extents []extent.Extent) {
	i := 0
	for _, e := range extents {
		for e.Off >= (l.runs[i].guest+l.runs[i].n)*l.cluster {
			i++
		}
		off := e.Off + (l.runs[i].host-l.runs[i].guest)*l.cluster
		if e.Literal != nil {
			p.PutBytes(off, e.Literal)
		} else {
			p.PutRange(off, e.Blob, e.BlobOff, e.Len)
		}
	}
}

func ceil(n, unit int64) int64 { return (n + unit - 1) / unit }
