// Slurm's side of a job's claim, as a SPANK plugin: the options --xpud-memory and --xpud-class of srun,
// sbatch and salloc, and the mount of the claim's folder over /run/xpud in each task.
//
// The options are checked where they are given, because a prolog that fails drains the node. They reach the
// prolog as SPANK_XPUD_MEMORY and SPANK_XPUD_CLASS. Users can set these by hand, so that the agent checks
// them again.
//
// What a task gets is in the job's note, a file that the prolog has written (xpud_slurm.cc), and which only
// root can write. Nothing in the user's environment counts.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(xpud, 1)

#define FOLDER "/run/xpud"               // where clients look for the daemon
#define DEFAULT_NOTES "/run/xpud-slurm"  // as in xpud_slurm.cc
#define MAX_SHARE 100
#define FOLDER_WAIT_MS 10000  // a restarted daemon makes the folder again within seconds
enum { kMemoryOption, kClassOption };

static const char* const kClasses[] = {"realtime", "interactive", "batch"};  // the best first
enum { kClassCount = sizeof(kClasses) / sizeof(kClasses[0]) };

// From plugstack.conf.
static int best_class;
static uint64_t max_memory_per_share;  // 0: no limit
static char notes[256] = DEFAULT_NOTES;
// The user's options; empty: not given.
static char memory_option[32], class_option[16];

// Returns the index of a class, or -1.
static int ClassOf(const char* name) {
  for (int i = 0; i < kClassCount; ++i)
    if (strcmp(name, kClasses[i]) == 0) return i;
  return -1;
}

// Reads "4GiB", "512M" or "1.5G", in units of 1024. Returns false if it is not a size with a unit.
static bool ParseSize(const char* text, uint64_t* bytes) {
  static const char kUnits[] = "KMGT";
  char* end = NULL;
  if (text[0] < '0' || text[0] > '9') return false;
  errno = 0;
  const double number = strtod(text, &end);
  if (errno != 0 || strspn(text, "0123456789.") != (size_t)(end - text) || *end == '\0') return false;
  const char* unit = strchr(kUnits, *end);
  if (unit == NULL) return false;
  ++end;
  if (strcmp(end, "") != 0 && strcmp(end, "B") != 0 && strcmp(end, "iB") != 0) return false;
  const double value = number * (double)(UINT64_C(1024) << (10 * (unit - kUnits)));
  if (!(value >= 1) || value >= 9e18) return false;
  *bytes = (uint64_t)value;
  return true;
}

static int TakeMemory(const char* text) {
  uint64_t bytes = 0;
  if (!ParseSize(text, &bytes)) {
    slurm_error("--xpud-memory: \"%s\" is not a size; use a number with a unit, such as 4GiB or 512MiB",
                text);
    return -1;
  }
  if (max_memory_per_share != 0 && bytes / MAX_SHARE > max_memory_per_share) {
    slurm_error(
        "--xpud-memory: %s is more than this cluster allows: %llu MiB for each share of 1, so %llu MiB for "
        "%d",
        text, (unsigned long long)(max_memory_per_share >> 20),
        (unsigned long long)((max_memory_per_share * MAX_SHARE) >> 20), MAX_SHARE);
    return -1;
  }
  snprintf(memory_option, sizeof(memory_option), "%llu", (unsigned long long)bytes);
  return 0;
}

static int TakeClass(const char* text) {
  const int found = ClassOf(text);
  if (found < 0) {
    slurm_error("--xpud-class: \"%s\" is not a class; use realtime, interactive or batch", text);
    return -1;
  }
  if (found < best_class) {
    slurm_error("--xpud-class: %s is not allowed; the best class of this cluster is %s", text,
                kClasses[best_class]);
    return -1;
  }
  snprintf(class_option, sizeof(class_option), "%s", text);
  return 0;
}

// `remote`: in slurmstepd, where the claim is made already.
static int TakeOption(int option, const char* text, int remote) {
  if (remote) return 0;
  if (text == NULL) text = "";
  return option == kMemoryOption ? TakeMemory(text) : TakeClass(text);
}

static struct spank_option options[] = {
    {"xpud-memory", "SIZE", "Device memory that the job's xpud share keeps and may use, such as 4GiB.", 1,
     kMemoryOption, TakeOption},
    {"xpud-class", "CLASS", "Class of the job's xpud share: realtime, interactive or batch.", 1, kClassOption,
     TakeOption},
};

// The rest of `argument` after `name`; NULL if it does not begin so.
static const char* After(const char* argument, const char* name) {
  const size_t length = strlen(name);
  return strncmp(argument, name, length) == 0 ? argument + length : NULL;
}

// Reads an argument of plugstack.conf. Returns false if it is not allowed.
static bool ReadArgument(const char* argument) {
  const char* const class_name = After(argument, "max_class=");
  if (class_name != NULL) {
    const int found = ClassOf(class_name);
    if (found >= 0) best_class = found;
    return found >= 0;
  }
  const char* const memory = After(argument, "max_memory_per_share=");
  if (memory != NULL) return ParseSize(memory, &max_memory_per_share);
  const char* const folder = After(argument, "notes=");
  return folder != NULL && folder[0] == '/' &&
         snprintf(notes, sizeof(notes), "%s", folder) < (int)sizeof(notes);
}

static bool IsSubmission(void) {
  const spank_context_t context = spank_context();
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  best_class = ClassOf("interactive");
  for (int i = 0; i < count; ++i) {
    if (ReadArgument(arguments[i])) continue;
    slurm_error(
        "spank_xpud: plugstack.conf has \"%s\"; use max_class=CLASS, max_memory_per_share=SIZE or "
        "notes=FOLDER",
        arguments[i]);
    if (IsSubmission()) return ESPANK_BAD_ARG;
  }
  if (!IsSubmission() && spank_context() != S_CTX_REMOTE) return ESPANK_SUCCESS;
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); ++i) {
    const spank_err_t failure = spank_option_register(spank, &options[i]);
    if (failure != ESPANK_SUCCESS) {
      slurm_error("spank_xpud: cannot add --%s: %s", options[i].name, spank_strerror(failure));
      return failure;
    }
  }
  return ESPANK_SUCCESS;
}

static int SetForProlog(spank_t spank, const char* name, const char* value) {
  if (value[0] == '\0') {
    spank_job_control_unsetenv(spank, name);  // there may be none
    return ESPANK_SUCCESS;
  }
  const spank_err_t failure = spank_job_control_setenv(spank, name, value, 1);
  if (failure != ESPANK_SUCCESS) slurm_error("spank_xpud: cannot set %s: %s", name, spank_strerror(failure));
  return failure;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char** arguments) {
  (void)count;
  (void)arguments;
  if (!IsSubmission()) return ESPANK_SUCCESS;
  const int failure = SetForProlog(spank, "XPUD_MEMORY", memory_option);
  return failure != ESPANK_SUCCESS ? failure : SetForProlog(spank, "XPUD_CLASS", class_option);
}

// ---- in a task

// Reads a job's note. Returns false, and says why, if it cannot be trusted; `text` is empty if there is none.
static bool ReadNote(uint32_t job, char* text, size_t size) {
  char path[sizeof(notes) + 16];
  snprintf(path, sizeof(path), "%s/%u", notes, job);
  text[0] = '\0';
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0 && errno == ENOENT) return true;
  struct stat info;
  if (file < 0 || fstat(file, &info) != 0) {
    slurm_error("xpud: cannot read %s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return false;
  }
  const bool is_ours = S_ISREG(info.st_mode) && info.st_uid == 0 && (info.st_mode & 022) == 0;
  const ssize_t length = is_ours ? read(file, text, size - 1) : 0;
  close(file);
  if (!is_ours || length <= 0) {
    slurm_error("xpud: %s is not what the prolog writes; only root may write there", path);
    return false;
  }
  text[length] = '\0';
  return true;
}

// Gives the task mounts of its own.
static bool LeaveMounts(void) {
  if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) == 0) return true;
  slurm_error("xpud: cannot make a mount namespace: %s", strerror(errno));
  return false;
}

static const unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;

// Covers the node's sockets with an empty folder.
static bool MountEmpty(void) {
  if (access(FOLDER, F_OK) != 0) return true;  // there is no daemon
  if (!LeaveMounts()) return false;
  if (mount("xpud", FOLDER, "tmpfs", kFlags, "size=4k,mode=555") == 0) return true;
  slurm_error("xpud: cannot mount an empty %s: %s", FOLDER, strerror(errno));
  return false;
}

// Waits for a folder that a restarted daemon is about to make again.
static bool WaitForFolder(const char* path) {
  const struct timespec pause = {0, 50 * 1000 * 1000};
  for (int waited = 0; waited < FOLDER_WAIT_MS; waited += 50) {
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return true;
    nanosleep(&pause, NULL);
  }
  return false;
}

static bool MountClaim(const char* folder) {
  if (!WaitForFolder(folder)) {
    slurm_error("xpud: the job's claim has no folder %s; is the daemon running on this node?", folder);
    return false;
  }
  if (!LeaveMounts()) return false;
  if (mount(folder, FOLDER, NULL, MS_BIND, NULL) == 0 &&
      mount(NULL, FOLDER, NULL, MS_REMOUNT | MS_BIND | kFlags, NULL) == 0)
    return true;
  slurm_error("xpud: cannot mount %s over %s: %s", folder, FOLDER, strerror(errno));
  return false;
}

// Prints what the agent has limited, once in a step and node.
static void PrintWarnings(spank_t spank, const char* text) {
  int task = -1;
  if (spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS || task != 0) return;
  while (*text != '\0') {
    const size_t length = strcspn(text, "\n");
    slurm_spank_log("xpud: %.*s", (int)length, text);
    text += length + (text[length] == '\n');
  }
}

// As root, in the task's process, before the user's program.
int slurm_spank_task_init_privileged(spank_t spank, int count, char** arguments) {
  (void)count;
  (void)arguments;
  uint32_t job = 0;
  const spank_err_t failure = spank_get_item(spank, S_JOB_ID, &job);
  if (failure != ESPANK_SUCCESS) {
    slurm_error("xpud: the job's number is not known: %s", spank_strerror(failure));
    return -1;
  }
  char text[2048];
  if (!ReadNote(job, text, sizeof(text))) return -1;
  char* rest = text + strcspn(text, "\n");
  if (*rest == '\n') *rest++ = '\0';
  // Without a note no prolog has run: this is no node of xpud, unless other jobs have notes.
  if (text[0] == '\0' && access(notes, F_OK) == 0)
    slurm_spank_log("xpud: no prolog has run for job %u on this node, so that it has no part of a device",
                    job);
  if (text[0] == '\0' || strcmp(text, "none") == 0) return MountEmpty() ? ESPANK_SUCCESS : -1;
  const char* const folder = After(text, "claim ");
  if (folder != NULL) {
    if (!MountClaim(folder)) return -1;
    PrintWarnings(spank, rest);
    return ESPANK_SUCCESS;
  }
  const char* const reason = After(text, "failed ");
  slurm_error("xpud: job %u has no part of a device on this node: %s", job,
              reason != NULL ? reason : "its note is unknown");
  return -1;
}
