#!/bin/sh
# Builds the kernel in the engine's sandbox. Inputs: /in/*.config (fragments), /in/randstruct.seed, the unpacked
# linux-source package at /src. Outputs: /out/vmlinuz and /out/config. Everything that would differ between two
# machines (time, user, host, path, seed) is fixed by the step's environment or here.
set -eu
tar -xJf /src/usr/src/linux-source-*.tar.xz -C /build --strip-components=1
cd /build

# The seed of the structure layout is an input: upstream draws it from /dev/urandom (docs/adr/0005).
cat >scripts/gen-randstruct-seed.sh <<'SEED'
#!/bin/sh
seed=$(cat /in/randstruct.seed)
echo "$seed" >"$1"
echo "#define RANDSTRUCT_HASHED_SEED \"$(printf %s "$seed" | sha256sum | cut -d' ' -f1)\"" >"$2"
SEED

cat /in/*.config >/build/.wanted
make LLVM=-19 KCONFIG_ALLCONFIG=/build/.wanted alldefconfig

# Kconfig drops what it cannot satisfy without a word; here that ends the build. The last mention of an option wins.
awk '
	function note(file, name, value) { if (file == 1) want[name] = value; else have[name] = value }
	FNR == 1 { n++ }
	/^CONFIG_[A-Za-z0-9_]+=/ { i = index($0, "="); note(n, substr($0, 1, i - 1), substr($0, i + 1)) }
	/^# CONFIG_[A-Za-z0-9_]+ is not set/ { note(n, $2, "n") }
	END {
		for (name in want) {
			value = name in have ? have[name] : "n"
			if (value != want[name]) { printf "option did not survive the merge: %s wanted %s, is %s\n", name, want[name], value; bad = 1 }
		}
		exit bad
	}' /build/.wanted .config >&2

# One line a compiled object; the engine counts them against the number of objects make would build.
make LLVM=-19 -j"$(nproc)" bzImage
cp arch/x86/boot/bzImage /out/vmlinuz
cp .config /out/config
