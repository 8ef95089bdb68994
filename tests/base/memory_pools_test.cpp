#include "base/memory_pools.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A machine as its /proc and /sys show it.
class FakeMachine {
 public:
  FakeMachine& file(const std::string& path, const std::string& content) {
    make_directories((root_ / path).parent_path());
    root_.write(path, content);
    return *this;
  }
  FakeMachine& memory(int64_t available) {
    return file("proc/meminfo", cat("MemTotal:   24684096 kB\nMemFree:  100 kB\nMemAvailable:   ",
                                    available / 1024, " kB\n"))
        .file("proc/sys/kernel/random/boot_id", "0b1c\n");
  }
  FakeMachine& version2(const std::string& path, const std::string& mount_root = "/") {
    return file("proc/self/cgroup", cat("0::", path, "\n"))
        .file("proc/self/mountinfo",
              cat("22 1 0:20 / /proc rw - proc proc rw\n31 24 0:27 ", mount_root,
                  " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"));
  }
  FakeMachine& group2(const std::string& path, const std::string& max, int64_t current,
                      int64_t cache, const std::string& high = "max") {
    std::string at = cat("sys/fs/cgroup", path, "/");
    return file(at + "memory.max", max + "\n")
        .file(at + "memory.high", high + "\n")
        .file(at + "memory.current", cat(current, "\n"))
        .file(at + "memory.stat", cat("anon 1\nfile 9\ninactive_anon 7\nactive_file ", cache / 2,
                                      "\ninactive_file ", cache - cache / 2, "\n"));
  }
  std::map<std::string, int64_t> pools() const {
    std::map<std::string, int64_t> by_name;
    for (const MemoryPool& pool : memory_pools(root_.path())) by_name[pool.name] = pool.available;
    return by_name;
  }
  std::vector<MemoryPool> all() const { return memory_pools(root_.path()); }

 private:
  ScratchDirectory root_;
};

using Pools = std::map<std::string, int64_t>;

TEST(MemoryPools, WithoutAnythingToReadNothingIsKnown) {
  EXPECT_TRUE(FakeMachine().all().empty());
  FakeMachine odd;
  odd.file("proc/meminfo", "MemAvailable: lots\n").file("proc/self/cgroup", "0:\n::\nnonsense");
  odd.file("proc/self/mountinfo", "a - b\n - \n1 2 3 4 5 - cgroup2\n");
  EXPECT_TRUE(odd.all().empty());
}

TEST(MemoryPools, TheMachineSaysWhatIsAvailable) {
  FakeMachine machine;
  machine.memory(700 * kMiB);
  EXPECT_EQ(machine.pools(), (Pools{{"this machine (MemAvailable)", 700 * kMiB}}));
  EXPECT_EQ(machine.all()[0].id, "machine 0b1c");
}

TEST(MemoryPools, EveryLimitOnTheWayUpCountsInVersion2) {
  FakeMachine machine;
  machine.version2("/slurm/job_7/step_0");
  machine.group2("/slurm/job_7/step_0", "max", 10 * kMiB, 0);
  machine.group2("/slurm/job_7", cat(800 * kMiB), 500 * kMiB, 0);
  machine.group2("/slurm", cat(4000 * kMiB), 600 * kMiB, 100 * kMiB, cat(3000 * kMiB));
  EXPECT_EQ(machine.pools(), (Pools{{"cgroup /slurm/job_7 (memory.max)", 300 * kMiB},
                                    {"cgroup /slurm (memory.max)", 3500 * kMiB},
                                    {"cgroup /slurm (memory.high)", 2500 * kMiB}}));
}

TEST(MemoryPools, PageCacheIsNotUsedMemory) {
  FakeMachine machine;
  machine.version2("/a").group2("/a", cat(100 * kMiB), 90 * kMiB, 60 * kMiB);
  EXPECT_EQ(machine.pools(), (Pools{{"cgroup /a (memory.max)", 70 * kMiB}}));
  // A group above its limit, or files that are read at different moments.
  machine.group2("/a", cat(100 * kMiB), 190 * kMiB, 60 * kMiB);
  EXPECT_EQ(machine.pools(), (Pools{{"cgroup /a (memory.max)", 0}}));
  machine.group2("/a", cat(100 * kMiB), 10 * kMiB, 60 * kMiB);
  EXPECT_EQ(machine.pools(), (Pools{{"cgroup /a (memory.max)", 100 * kMiB}}));
}

TEST(MemoryPools, AContainerSeesItsOwnGroupAtTheMount) {
  // Without a namespace of its own: the path is that of the host, and so is the mount's root.
  FakeMachine bound;
  bound.version2("/docker/4f2a", "/docker/4f2a").group2("", cat(50 * kMiB), kMiB, 0);
  EXPECT_EQ(bound.pools(), (Pools{{"cgroup / (memory.max)", 49 * kMiB}}));
  // With one; moved into it later, its path leads out of what it sees.
  for (const char* path : {"/", "/../sibling"}) {
    FakeMachine own;
    own.version2(path).group2("", cat(50 * kMiB), kMiB, 0);
    EXPECT_EQ(own.pools(), (Pools{{"cgroup / (memory.max)", 49 * kMiB}})) << path;
  }
}

TEST(MemoryPools, Version1BesideVersion2) {
  FakeMachine machine;
  machine.file("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/batch/j\n3:cpuset:/\n0::/\n");
  machine.file("proc/self/mountinfo",
               "35 31 0:32 / /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,cpu,memory\n"
               "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
               "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  auto group = [&](const std::string& path, int64_t limit, int64_t usage, int64_t cache) {
    std::string at = cat("sys/fs/cgroup/my memory", path, "/");
    machine.file(at + "memory.limit_in_bytes", cat(limit, "\n"))
        .file(at + "memory.usage_in_bytes", cat(usage, "\n"))
        .file(at + "memory.stat", cat("inactive_file 5\nactive_file 5\ntotal_inactive_file ", cache,
                                      "\ntotal_active_file 0\n"));
  };
  group("/batch/j", 800 * kMiB, 300 * kMiB, 200 * kMiB);
  group("/batch", 900 * kMiB, 850 * kMiB, 200 * kMiB);
  group("", 9223372036854771712, 10'000 * kMiB, 0);
  EXPECT_EQ(machine.pools(), (Pools{{"cgroup /batch/j (memory.limit_in_bytes)", 700 * kMiB},
                                    {"cgroup /batch (memory.limit_in_bytes)", 250 * kMiB}}));
}

TEST(MemoryPools, GroupsAreToldApartWhereverTheyAreMounted) {
  FakeMachine machine;
  machine.version2("/a/b").group2("/a/b", cat(9 * kMiB), 0, 0).group2("/a", cat(9 * kMiB), 0, 0);
  std::vector<MemoryPool> pools = machine.all();
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_NE(pools[0].id, pools[1].id);
  EXPECT_EQ(machine.all()[0].id, pools[0].id);
}

TEST(MemoryPools, LimitsOfTheProcessAreItsOwn) {
  FakeMachine machine;
  machine.file("proc/self/limits",
               "Limit                     Soft Limit           Hard Limit           Units     \n"
               "Max data size             unlimited            unlimited            bytes     \n"
               "Max address space         1073741824           unlimited            bytes     \n");
  machine.file("proc/self/status", "Name:\ttessera\nVmSize:\t  262144 kB\nVmData:\t  1 kB\n");
  ASSERT_EQ(machine.all().size(), 1u);
  EXPECT_EQ(machine.all()[0].id, "");
  EXPECT_EQ(machine.pools(),
            (Pools{{"the limit of a process's address space (ulimit -v)", 768 * kMiB}}));
}

// Whatever this machine is: it can be read without harm, and says something sensible.
TEST(MemoryPools, ReadsThisMachine) {
  for (const MemoryPool& pool : memory_pools()) EXPECT_GE(pool.available, 0) << pool.name;
}

}  // namespace
}  // namespace tessera
