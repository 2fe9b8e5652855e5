package progress

import (
	"io"
	"os"
)

// BuildKit's display ends with the logs of what failed, whole on a terminal. The error of the build has the end of
// the same log, so it would be told twice. The display writes this line, by itself, before each of them, and
// a log line never comes without its number before it.
const logRule = "------\n"

// withoutLogs drops everything from the first rule on.
type withoutLogs struct {
	io.Writer
	muted bool
}

func (w *withoutLogs) Write(p []byte) (int, error) {
	if w.muted = w.muted || string(p) == logRule; w.muted {
		return len(p), nil
	}
	return w.Writer.Write(p)
}

// consoleWithoutLogs does the same for a terminal, which must stay recognizable as a file.
type consoleWithoutLogs struct {
	*os.File
	muted bool
}

func (w *consoleWithoutLogs) Write(p []byte) (int, error) {
	if w.muted = w.muted || string(p) == logRule; w.muted {
		return len(p), nil
	}
	return w.File.Write(p)
}
