package tabular

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Frames finds where the rows of CSV end (RFC 4180: double quotes, CRLF or LF),
// in memory bounded by the longest row allowed.
type Frames struct {
	Line   int   // line of the file at which the next row starts, from 1
	Offset int64 // byte offset in the unpacked file at which the next row starts

	r     io.Reader
	max   int // bound on the bytes of a row
	buf   []byte
	pos   int   // start of the row to be read, in buf
	end   int   // bytes in buf
	err   error // why buf could not be filled further
	frame Frame
	start int // of the frame, in buf
}

// Held returns the bytes of memory of the buffer: at most two more than the longest row allowed.
func (f *Frames) Held() int { return len(f.buf) }

// Frame is one row as it is in the file.
type Frame struct {
	Line   int    // where it starts
	Offset int64  // byte offset in the unpacked file where it starts
	Raw    []byte // with its line end; valid until the next call of Next
	Broken string // why the row's end cannot be found; Raw is then its beginning
}

// NewFrames reads rows of at most the given number of bytes.
func NewFrames(r io.Reader, most int) *Frames {
	return &Frames{r: r, max: most, buf: make([]byte, min(64<<10, most+2)), Line: 1}
}

// Next returns the next row, including blank ones. It returns io.EOF after the last. It returns any
// other error of the file after the complete rows before it. After a row whose end cannot be found,
// reading continues in the next line.
func (f *Frames) Next() (Frame, error) {
	f.frame, f.start = Frame{Line: f.Line, Offset: f.Offset}, f.pos
	length, why := f.extent()
	f.start = f.pos // filling may have moved it
	switch why {
	case "":
		f.frame.Raw = f.buf[f.pos : f.pos+length]
		f.advance(length)
	case atEnd:
		return f.frame, f.err
	default:
		f.frame.Raw, f.frame.Broken = bytes.Clone(f.buf[f.pos:min(f.pos+80, f.end)]), why
		f.skipLine()
	}
	return f.frame, nil
}

// FirstLineOnly reduces the last row to its first line. A caller that cannot split a row thus
// continues in the next line of the file.
func (f *Frames) FirstLineOnly() {
	length := len(f.frame.Raw)
	if i := bytes.IndexByte(f.frame.Raw, '\n'); i >= 0 {
		length = i + 1
	}
	f.pos, f.Line, f.Offset = f.start, f.frame.Line, f.frame.Offset
	f.advance(length)
}

const atEnd = "end of file"

// extent finds the end of the row at pos. It returns the row's length with the line end, or why
// there is no end.
func (f *Frames) extent() (length int, why string) {
	odd := false // an odd number of quotes so far: a line end is part of a field
	scanned := 0 // from pos
	for {
		for {
			i := bytes.IndexByte(f.buf[f.pos+scanned:f.end], '\n')
			if i < 0 {
				break
			}
			odd = odd != (bytes.Count(f.buf[f.pos+scanned:f.pos+scanned+i], quote)%2 == 1)
			scanned += i + 1
			if !odd {
				if scanned > f.max+1 {
					return 0, f.tooLong(scanned)
				}
				return scanned, ""
			}
		}
		odd = odd != (bytes.Count(f.buf[f.pos+scanned:f.end], quote)%2 == 1)
		scanned = f.end - f.pos
		if f.fill() {
			continue
		}
		switch {
		case scanned > f.max:
			return 0, f.tooLong(scanned)
		case !errors.Is(f.err, io.EOF) || scanned == 0:
			return 0, atEnd
		case odd:
			return 0, "a quoted field is never closed"
		default:
			return scanned, "" // the last row need not end in a line end
		}
	}
}

var quote = []byte{'"'}

func (f *Frames) tooLong(scanned int) string {
	if bytes.IndexByte(f.buf[f.pos:f.pos+min(scanned, f.max)], '\n') >= 0 {
		return fmt.Sprintf("a quoted field is not closed within %d bytes", f.max)
	}
	return fmt.Sprintf("the line is longer than %d bytes", f.max)
}

// fill reads more bytes after those in buf, making room first. It returns false if there are none
// left or the row at pos has the maximum length.
func (f *Frames) fill() bool {
	if f.err != nil {
		return false
	}
	if f.pos > 0 && f.end == len(f.buf) {
		copy(f.buf, f.buf[f.pos:f.end])
		f.end -= f.pos
		f.pos = 0
	}
	if f.end == len(f.buf) {
		if len(f.buf) >= f.max+2 {
			return false
		}
		grown := make([]byte, min(2*len(f.buf), f.max+2))
		copy(grown, f.buf[:f.end])
		f.buf = grown
	}
	for range 100 {
		n, err := f.r.Read(f.buf[f.end:])
		f.end += n
		f.err = err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	f.err = io.ErrNoProgress
	return false
}

// advance moves past n bytes of the file, counting lines.
func (f *Frames) advance(n int) {
	f.Line += bytes.Count(f.buf[f.pos:f.pos+n], []byte{'\n'})
	f.Offset += int64(n)
	f.pos += n
}

// skipLine moves to the next line of the file, however long this one is.
func (f *Frames) skipLine() {
	for {
		if i := bytes.IndexByte(f.buf[f.pos:f.end], '\n'); i >= 0 {
			f.advance(i + 1)
			return
		}
		f.Offset += int64(f.end - f.pos)
		f.pos, f.end = 0, 0
		if !f.fill() {
			return
		}
	}
}
