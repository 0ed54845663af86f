package shelltools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"condensate.dev/cnd/core/loop"
)

type readInput struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

func (i readInput) name() string { return i.Path }

func (i readInput) check() error {
	switch {
	case i.Path == "":
		return errors.New("path is missing")
	case i.Offset < 0 || i.Limit < 0:
		return errors.New("offset and limit must be positive")
	}
	return nil
}

func read(ctx context.Context, f folder, path string, input readInput) (loop.Result, error) {
	p, err := f.open(path, false)
	if err != nil {
		return loop.Result{}, f.about(path, err)
	}
	defer p.close()
	file, info, err := p.file()
	if err != nil {
		return loop.Result{}, f.about(path, err)
	}
	defer file.Close()
	r, err := readFile(ctx, file, info, input)
	return r, f.about(path, err)
}

func readFile(ctx context.Context, file *os.File, info fs.FileInfo, input readInput) (loop.Result, error) {
	head := make([]byte, sniffed)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return loop.Result{}, err
	}
	head = head[:n]
	switch media := imageType(head); {
	case media != "":
		return readImage(file, info.Size(), media)
	case isBinary(head):
		return loop.Result{}, fmt.Errorf("is a binary file of %d bytes", info.Size())
	case n == 0:
		return textResult("(the file is empty)"), nil
	}
	return readLines(ctx, file, max(input.Offset, 1), input.Limit)
}

// readLines shows limit lines from the line with that number on, each with its number before it.
func readLines(ctx context.Context, file io.Reader, from, limit int) (loop.Result, error) {
	const room = 200 // bytes for the line that says where to go on
	if limit == 0 {
		limit = MaxLines
	}
	scanned := &io.LimitedReader{R: file, N: MaxScanned}
	in := bufio.NewReaderSize(scanned, 64<<10)
	var out bytes.Buffer
	for number := 1; ; number++ {
		if ctx.Err() != nil {
			return loop.Result{}, errStopped
		}
		line, cut, err := nextLine(in, MaxLine)
		switch {
		case err == io.EOF && scanned.N == 0:
			out.WriteString("[what follows is beyond the first " + strconv.Itoa(MaxScanned) + " bytes, which is as far as read looks]\n")
			return textResult(out.String()), nil
		case err == io.EOF && out.Len() > 0:
			return textResult(out.String()), nil
		case err == io.EOF:
			return loop.Result{}, fmt.Errorf("has %d lines; there is no line %d", number-1, from)
		case err != nil:
			return loop.Result{}, err
		case number < from:
			continue
		}
		text := fmt.Sprintf("%6d\t%s", number, valid(string(line)))
		if cut > 0 {
			text += fmt.Sprintf(" [… %d bytes left out]", cut)
		}
		if number-from == limit || out.Len()+len(text) > MaxOutput-room {
			out.WriteString("[the file goes on; read it with \"offset\": " + strconv.Itoa(number) + "]\n")
			return textResult(out.String()), nil
		}
		out.WriteString(text + "\n")
	}
}

// nextLine reads one line without its end. It keeps the first limit bytes and counts the others; at the end of the
// input it returns io.EOF and nothing else.
func nextLine(in *bufio.Reader, limit int) (line []byte, cut int64, err error) {
	for read := false; ; read = true {
		piece, err := in.ReadSlice('\n')
		ended := err == nil
		if err == io.EOF && (read || len(piece) > 0) {
			ended = true
		} else if err != nil && err != bufio.ErrBufferFull {
			return nil, 0, err
		}
		piece = bytes.TrimSuffix(piece, []byte("\n"))
		fits := min(len(piece), limit-len(line))
		line = append(line, piece[:fits]...)
		cut += int64(len(piece) - fits)
		if ended {
			if cut == 0 {
				return bytes.TrimSuffix(line, []byte("\r")), 0, nil
			}
			n := whole(line)
			return line[:n], cut + int64(len(line)-n), nil
		}
	}
}
