package verity_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/verity"
	"github.com/talos-factory/talos-factory/format/verity/superblock"
)

// sample is so many bytes that repeat nowhere: the SHA-256 of 0, 1, 2 ... as little-endian numbers of 8 bytes.
func sample(size int) []byte {
	var b []byte
	for i := uint64(0); len(b) < size; i++ {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
		b = append(b, sum[:]...)
	}
	return b[:size]
}

var salt = sha256.Sum256([]byte("talos"))

// TestGolden compares with what `veritysetup format --salt=... --uuid=...` of cryptsetup 2.6.1 wrote for the same bytes.
func TestGolden(t *testing.T) {
	for _, test := range []struct {
		name       string
		blocks     int
		root, tree string
	}{
		{"no level", 1, "bbe23cf617938048e7e9176cb316e364a953f3b61fa5f2dcb21be859c437bb94", "cd5d766c130250cf598e7295361606dae8a7f73f6cbcb2a2e3659898a8e94ef0"},
		{"one level", 2, "aaf29064b7003e5b043f1ad6c013ea80f01b17cadd38af531600fcbe451e8756", "da1c2fe6d97c6d29ad4b3d56a8c72146705bf32c475afdd3cc11dae84e5ba6b0"},
		{"one full block of hashes", 128, "1c1d328fc42f5b7ba9dfcf13c82db008dc21cd4adc414ca21fe5454c09880e78", "c14c8309266f4f7bb5591c34650a6296982e164158544501946b448db0954a10"},
		{"two levels", 129, "cdbd8b22c5f2ba0c9e07d950223ff87df7db0fc3938a570a2c43f92c61dc5d82", "2aed51b8c0f6bc405d763c572e46eee451b002ac1182d78f33c0b4e6fb521394"},
		{"three levels", 128*128 + 1, "77ea127c67fd93ef22411934095a4a25687700d4c168a08a9f66ab288e92219f", "839b60896ecb1381f2def317761e869b0789725289a243f6f323c7dc6a70998a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tree bytes.Buffer
			size := test.blocks * superblock.BlockSize
			root, err := verity.Write(&tree, bytes.NewReader(sample(size)), salt[:])
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%x", root); got != test.root {
				t.Errorf("root hash: got %s, want %s", got, test.root)
			}
			if got := fmt.Sprintf("%x", sha256.Sum256(tree.Bytes())); got != test.tree {
				t.Errorf("digest of the tree: got %s, want %s", got, test.tree)
			}
			if got := int64(tree.Len()); got != verity.TreeSize(int64(size)) {
				t.Errorf("the tree has %d bytes, TreeSize says %d", got, verity.TreeSize(int64(size)))
			}
		})
	}
}

// TestShortLastBlock: zeros that the plan adds and zeros that Write imagines are the same; small reads change nothing.
func TestShortLastBlock(t *testing.T) {
	data := sample(3*superblock.BlockSize + 1)
	store := extent.Memory{}
	var tree bytes.Buffer
	root, err := verity.Write(&tree, iotest.OneByteReader(bytes.NewReader(data)), salt[:])
	if err != nil {
		t.Fatal(err)
	}
	plan, err := verity.Plan(store.Add(data), store.Add(tree.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if plan.Literals() != 0 {
		t.Errorf("the plan has %d literal bytes", plan.Literals())
	}
	file, err := io.ReadAll(plan.NewReader(store))
	if err != nil {
		t.Fatal(err)
	}
	at := superblock.Offset(int64(len(data)))
	var again bytes.Buffer
	padded, err := verity.Write(&again, bytes.NewReader(file[:at]), salt[:])
	if err != nil {
		t.Fatal(err)
	}
	if padded != root || !bytes.Equal(again.Bytes(), file[at:]) {
		t.Errorf("padded data has root %x, want %x", padded, root)
	}
	head, err := superblock.Parse(file[at:])
	if err != nil || head.DataBlocks != 4 || !bytes.Equal(head.Salt, salt[:]) {
		t.Errorf("superblock in the plan: %+v (%v)", head, err)
	}
}

func TestRefusals(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, test := range map[string]struct {
		data io.Reader
		salt []byte
	}{
		"no data":   {bytes.NewReader(nil), nil},
		"long salt": {bytes.NewReader(sample(1)), make([]byte, 257)},
		"bad disk":  {iotest.ErrReader(broken), nil},
	} {
		if _, err := verity.Write(io.Discard, test.data, test.salt); err == nil || name == "bad disk" && !errors.Is(err, broken) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := verity.Plan(extent.Blob{Size: 8192}, extent.Blob{Size: 4096}); err == nil {
		t.Error("planned a tree that is too short")
	}
}

func Example() {
	store := extent.Memory{}
	data := bytes.Repeat([]byte("squashfs"), 1000)
	var tree bytes.Buffer
	root, err := verity.Write(&tree, bytes.NewReader(data), []byte("salt"))
	if err != nil {
		panic(err)
	}
	plan, err := verity.Plan(store.Add(data), store.Add(tree.Bytes()))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s=%x\n%d bytes\n", superblock.Argument, root, plan.Size())
	// Output:
	// talos.verity=dee7c7482fd04a4f7ed51c83c012b538e109f08c18eb5da3bb63e59bde89c416
	// 16384 bytes
}

// The hash tree reads each byte once and hashes it once; BenchmarkSHA256 is what that costs at least.
func BenchmarkWrite(b *testing.B) {
	data := sample(16 << 20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := verity.Write(io.Discard, bytes.NewReader(data), salt[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSHA256(b *testing.B) {
	data := sample(16 << 20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		sha256.Sum256(data)
	}
}
