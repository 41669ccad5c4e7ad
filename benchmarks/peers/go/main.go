// Decodes binlog files with go-mysql and prints one JSON line of what that took.
//
// Usage: decode file|wire HOST PORT USER FILE...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

const fileStart = 4

// decoded is what is printed; an update counts as one row.
type decoded struct {
	Rows   int     `json:"rows"`
	Events int     `json:"events"`
	Wall   float64 `json:"wall"`
	CPU    float64 `json:"cpu"`
	RSS    int     `json:"rss"`
}

func main() {
	mode, host, user, files := os.Args[1], os.Args[2], os.Args[4], os.Args[5:]
	port, err := strconv.ParseUint(os.Args[3], 10, 16)
	if err != nil {
		fail(err)
	}
	// A program that does something with the rows has a larger heap, and so collects garbage less often.
	debug.SetGCPercent(400)
	var result decoded
	began, used := time.Now(), cpuSeconds()
	if mode == "file" {
		err = result.readFiles(files)
	} else {
		err = result.readWire(host, uint16(port), user, files)
	}
	if err != nil {
		fail(err)
	}
	result.Wall, result.CPU, result.RSS = time.Since(began).Seconds(), cpuSeconds()-used, maxRSS()
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func (d *decoded) readFiles(files []string) error {
	for _, file := range files {
		if err := replication.NewBinlogParser().ParseFile(file, fileStart, d.count); err != nil {
			return err
		}
	}
	return nil
}

// readWire reads as a replica does, from the start of the first file to the end of the last one.
func (d *decoded) readWire(host string, port uint16, user string, files []string) error {
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: uint32(1_000_000 + os.Getpid()),
		Flavor:   mysql.MySQLFlavor,
		Host:     host,
		Port:     port,
		User:     user,
	})
	defer syncer.Close()
	streamer, err := syncer.StartSync(mysql.Position{Name: filepath.Base(files[0]), Pos: fileStart})
	if err != nil {
		return err
	}
	for ends := 0; ends < len(files); {
		event, err := streamer.GetEvent(context.Background())
		if err != nil {
			return err
		}
		if err := d.count(event); err != nil {
			return err
		}
		// those that the server makes up have no time
		if event.Header.EventType == replication.ROTATE_EVENT && event.Header.Timestamp != 0 {
			ends++
		}
	}
	return nil
}

func (d *decoded) count(event *replication.BinlogEvent) error {
	d.Events++
	if rows, ok := event.Event.(*replication.RowsEvent); ok {
		if rows.Type() == replication.EnumRowsEventTypeUpdate {
			d.Rows += len(rows.Rows) / 2
		} else {
			d.Rows += len(rows.Rows)
		}
	}
	return nil
}

func cpuSeconds() float64 {
	var seconds float64
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err != nil {
			fail(err)
		}
		seconds += time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	}
	return seconds
}

// maxRSS is the most bytes of memory that the process had. Getrusage would count its parent's from before the exec.
func maxRSS() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err)
	}
	var kilobytes int
	for _, line := range strings.Split(string(status), "\n") {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(value, &kilobytes); err != nil {
				fail(err)
			}
		}
	}
	return kilobytes << 10
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
