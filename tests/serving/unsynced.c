/* Records what is written below a folder, for a test that cuts the power: LD_PRELOAD.

   UNSYNCED_FOLDER is the folder and UNSYNCED_JOURNAL the file of the records, in the order of the
   calls: kind (C create, W write, T truncate, S sync, U unlink), offset, sizes of path and data,
   path, data. A sync is recorded and not carried out, which the machine below would not notice. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;

static int watched(const char *path) {
  const char *folder = getenv("UNSYNCED_FOLDER");
  return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int path_of(int fd, char *path, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, size - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return watched(path);
}

static void record(char kind, const char *path, int64_t offset, const void *data, size_t size) {
  uint32_t name = strlen(path);
  struct __attribute__((packed)) { char kind; int64_t offset; uint32_t name; uint64_t size; } head =
      {kind, offset, name, size};
  struct iovec parts[3] = {
      {&head, sizeof head}, {(void *)path, name}, {(void *)data, data ? size : 0}};
  if (journal < 0)
    journal = syscall(SYS_openat, AT_FDCWD, getenv("UNSYNCED_JOURNAL"),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (syscall(SYS_writev, journal, parts, 3) < 0) abort();
}

static ssize_t write_at(int fd, const void *data, size_t size, int64_t offset) {
  char path[4096];
  if (!path_of(fd, path, sizeof path))
    return offset < 0 ? syscall(SYS_write, fd, data, size)
                      : syscall(SYS_pwrite64, fd, data, size, offset);
  pthread_mutex_lock(&lock);
  int64_t at = offset < 0 ? lseek(fd, 0, SEEK_CUR) : offset;
  ssize_t done = offset < 0 ? syscall(SYS_write, fd, data, size)
                            : syscall(SYS_pwrite64, fd, data, size, offset);
  if (done > 0) record('W', path, at, data, done);
  pthread_mutex_unlock(&lock);
  return done;
}

ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, -1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return write_at(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return write_at(fd, data, size, at);
}

static int cut_to(int fd, int64_t size) {
  char path[4096];
  if (!path_of(fd, path, sizeof path)) return syscall(SYS_ftruncate, fd, size);
  pthread_mutex_lock(&lock);
  int done = syscall(SYS_ftruncate, fd, size);
  if (done == 0) record('T', path, size, NULL, 0);
  pthread_mutex_unlock(&lock);
  return done;
}

int ftruncate(int fd, off_t size) { return cut_to(fd, size); }
int ftruncate64(int fd, off64_t size) { return cut_to(fd, size); }

static int sync_of(int fd, long call) {
  char path[4096];
  if (!path_of(fd, path, sizeof path)) return syscall(call, fd);
  pthread_mutex_lock(&lock);
  record('S', path, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}

int fsync(int fd) { return sync_of(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_of(fd, SYS_fdatasync); }

static int opened(const char *path, int flags, mode_t mode) {
  if (!(flags & O_CREAT) || !watched(path)) return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  pthread_mutex_lock(&lock);
  int isnew = access(path, F_OK) != 0;
  int fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  if (fd >= 0 && isnew) record('C', path, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return fd;
}

#define OPEN(name)                                  \
  int name(const char *path, int flags, ...) {      \
    mode_t mode = 0;                                \
    if (flags & (O_CREAT | O_TMPFILE)) {            \
      va_list more;                                 \
      va_start(more, flags);                        \
      mode = va_arg(more, mode_t);                  \
      va_end(more);                                 \
    }                                               \
    return opened(path, flags, mode);               \
  }
OPEN(open)
OPEN(open64)

int unlink(const char *path) {
  if (!watched(path)) return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  pthread_mutex_lock(&lock);
  int done = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
  if (done == 0) record('U', path, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return done;
}
