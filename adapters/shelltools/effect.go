package shelltools

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"condensate.dev/cnd/core/loop"
)

// absent stands for the hash of no file in a thread.FileEffect.
const absent = "absent"

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("has %d bytes; the limit is %d", size, limit)
}

// digest returns the hash of the file at the place, or "absent".
func (p place) digest() (string, error) {
	file, info, err := p.file()
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info.Size() > MaxReplaced {
		return "", tooLarge(info.Size(), MaxReplaced)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(file, MaxReplaced)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// tempName is the name of the file that a call writes before it renames it. Recovery finds it by the call alone.
func tempName(c loop.Call) string {
	return ".cnd-" + digest([]byte(string(c.Thread) + "/" + c.ID))[:24] + ".tmp"
}

// replace gives the file its new content at once and durably: whoever looks, also after a crash, sees the old one or
// the new one. A new file gets the mode that the umask leaves; a replaced one keeps mode and, as far as this user may,
// owner and group. Hard links keep the old content.
func (p place) replace(temp string, n version) error {
	err := p.stage(temp, n.content)
	if err == nil {
		err = p.publish(temp, n.before)
	}
	if err != nil {
		_ = p.dir.Remove(temp)
	}
	return err
}

// stage writes the content, durably, into a new file beside the one at the place.
func (p place) stage(temp string, content []byte) error {
	old, err := p.dir.Lstat(p.base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := p.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if old != nil {
		err = keepOwnerAndMode(file, old)
	}
	if err == nil {
		_, err = file.Write(content)
	}
	return errors.Join(err, file.Sync(), file.Close())
}

func keepOwnerAndMode(file *os.File, old fs.FileInfo) error {
	if old.Mode().Perm()&0o200 == 0 {
		return errors.New("is read-only")
	}
	if owner, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = file.Chown(int(owner.Uid), int(owner.Gid)) // only the superuser may give a file away
	}
	return file.Chmod(old.Mode().Perm())
}

// publish puts the staged file in its place, if what stands there still has the hash before.
func (p place) publish(temp, before string) error {
	now, err := p.digest()
	if err != nil {
		return err
	}
	if now != before {
		return errChanged
	}
	if err := p.dir.Rename(temp, p.base); err != nil {
		return err
	}
	return syncFolder(p.dir)
}

// syncFolder makes the names in the folder durable.
func syncFolder(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
