#include "launcher/run/program.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/run/elf_file.h"
#include "tests/unit/run/elf_images.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

ElfImage program_image() {
  ElfImage image;
  image.interpreter = true;
  return image;
}

TEST(ReadElf, TellsAProgramFromALibraryAndAStaticProgram) {
  const TempFolder folder;
  EXPECT_TRUE(read_elf(folder.write("program", program_image().bytes()))->interpreted);
  const auto library = read_elf(folder.write("library", library_image()));
  EXPECT_TRUE(library->native && library->shared_object && !library->interpreted);
  ElfImage fixed;
  fixed.type = ET_EXEC;
  const auto static_program = read_elf(folder.write("static", fixed.bytes()));
  EXPECT_TRUE(static_program->native && !static_program->shared_object && !static_program->interpreted);
}

TEST(ReadElf, NamesForeignMachines) {
  const TempFolder folder;
  ElfImage foreign;
  foreign.machine = EM_S390;
  EXPECT_EQ(read_elf(folder.write("a", foreign.bytes()))->machine, "machine 22");
  foreign.machine = EM_386;
  foreign.elf_class = ELFCLASS32;
  const auto old = read_elf(folder.write("b", foreign.bytes()));
  EXPECT_FALSE(old->native);
  EXPECT_EQ(old->machine, "32-bit x86");
}

TEST(ReadElf, RefusesWhatIsNoElfFileOrCutOff) {
  const TempFolder folder;
  EXPECT_FALSE(read_elf(folder.path("missing")));
  EXPECT_FALSE(read_elf(folder.path()));
  EXPECT_FALSE(read_elf(folder.write("script", "#!/bin/sh\n")));
  EXPECT_FALSE(read_elf(folder.write("linker_script", "/* GNU ld script */ GROUP ( libm.so.6 )")));
  const std::string whole = program_image().bytes();
  for (const std::size_t length : {4u, 17u, 40u, 64u, 100u}) EXPECT_FALSE(read_elf(folder.write("cut", whole.substr(0, length)))) << length;
}

TEST(ResolveProgram, TakesTheFirstExecutableOfThePath) {
  const TempFolder folder;
  folder.write("a/tool", "");                                  // not executable: passed by
  std::filesystem::create_directories(folder.path("b/tool"));  // a directory: passed by
  const std::string wanted = folder.write("c/tool", "", true);
  folder.write("d/tool", "", true);
  const std::string search = folder.path("a") + ":" + folder.path("b") + ":" + folder.path("c") + ":" + folder.path("d");
  EXPECT_EQ(resolve_program("tool", search).value(), wanted);
}

TEST(ResolveProgram, SaysWhatIsWrong) {
  const TempFolder folder;
  const std::string plain = folder.write("a/plain", "");
  EXPECT_EQ(resolve_program("plain", folder.path("a")).error().code, kExitNotExecutable);
  EXPECT_EQ(resolve_program(plain, "").error().code, kExitNotExecutable);
  EXPECT_EQ(resolve_program(folder.path("a"), "").error().code, kExitNotExecutable);
  EXPECT_EQ(resolve_program("nothing", folder.path("a")).error().code, kExitNotFound);
  EXPECT_EQ(resolve_program("./nothing", folder.path("a")).error().code, kExitNotFound);
  EXPECT_EQ(resolve_program("", folder.path("a")).error().code, kExitNotFound);
  EXPECT_EQ(resolve_program("tool", "").error().hint, "PATH is empty");
}

TEST(ResolveProgram, KeepsLinksBecauseAVirtualEnvironmentIsKnownByOne) {
  const TempFolder folder;
  folder.write("real", "", true);
  std::filesystem::create_directories(folder.path("bin"));
  std::filesystem::create_symlink(folder.path("real"), folder.path("bin/python"));
  EXPECT_EQ(find_python(folder.path("bin")), folder.path("bin/python"));
}

TEST(FindPython, PrefersPythonAndTakesPython3) {
  const TempFolder folder;
  const std::string three = folder.write("a/python3", "", true);
  const std::string plain = folder.write("b/python", "", true);
  EXPECT_EQ(find_python(folder.path("a") + ":" + folder.path("b")), plain);
  EXPECT_EQ(find_python(folder.path("a")), three);
  EXPECT_EQ(find_python(""), "");
}

TEST(CheckScript, WantsAReadableFile) {
  const TempFolder folder;
  EXPECT_TRUE(check_script(folder.write("a.py", "")).ok());
  EXPECT_EQ(check_script(folder.path("b.py")).error().code, kExitNotFound);
  EXPECT_EQ(check_script(folder.path()).error().code, kExitNotExecutable);
}

TEST(PreloadObstacle, NamesStaticAndForeignProgramsAndFollowsScripts) {
  const TempFolder folder;
  EXPECT_EQ(preload_obstacle(folder.write("program", program_image().bytes(), true)), "");
  ElfImage fixed;
  fixed.type = ET_EXEC;
  const std::string static_program = folder.write("static", fixed.bytes(), true);
  EXPECT_EQ(preload_obstacle(static_program), "'" + static_program + "' is statically linked");
  EXPECT_EQ(preload_obstacle(folder.write("script", "#! " + static_program + " -x\n", true)),
            "'" + static_program + "' is statically linked");
  ElfImage foreign = program_image();
  foreign.machine = EM_PPC64;
  const std::string other = folder.write("other", foreign.bytes(), true);
  EXPECT_EQ(preload_obstacle(other), "'" + other + "' is a program for machine 21");
  EXPECT_EQ(preload_obstacle(folder.path("missing")), "");
}

TEST(PreloadObstacle, NamesSetUserIdOfAnotherUser) {
  const TempFolder folder;
  const std::string program = folder.write("program", program_image().bytes(), true);
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  EXPECT_EQ(preload_obstacle(program), "");  // our own: no privilege is gained
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chown(program.c_str(), 12345, 0), 0);
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  EXPECT_EQ(preload_obstacle(program), "'" + program + "' is set-user-ID");
}

TEST(PreloadObjection, AcceptsALibraryOfOurOwn) {
  const TempFolder folder;
  EXPECT_EQ(preload_objection(folder.write("lib/liba.so", library_image())), "");
}

TEST(PreloadObjection, RefusesWhatLdPreloadCannotHoldOrOthersCanWrite) {
  const TempFolder folder;
  EXPECT_NE(preload_objection("liba.so"), "");
  EXPECT_NE(preload_objection(folder.write("with space/liba.so", library_image())), "");
  EXPECT_NE(preload_objection(folder.write("with:colon/liba.so", library_image())), "");
  EXPECT_NE(preload_objection(folder.write("text.so", "no library")), "");
  const std::string open_file = folder.write("open/liba.so", library_image());
  ASSERT_EQ(::chmod(open_file.c_str(), 0666), 0);
  EXPECT_EQ(preload_objection(open_file), "'" + open_file + "' can be written by everybody");
  ASSERT_EQ(::chmod(open_file.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(folder.path("open").c_str(), 0777), 0);
  EXPECT_EQ(preload_objection(open_file), "'" + folder.path("open") + "' can be written by everybody");
  ASSERT_EQ(::chmod(folder.path("open").c_str(), 01777), 0);  // sticky, as /tmp
  EXPECT_EQ(preload_objection(open_file), "");
}

TEST(PreloadObjection, FollowsLinksAsTheLoaderDoes) {
  const TempFolder folder;
  const std::string library = folder.write("open/liba.so", library_image());
  folder.write("safe/README", "");
  std::filesystem::create_symlink("../open/liba.so", folder.path("safe/liba.so"));
  std::filesystem::create_directory_symlink(folder.path("safe"), folder.path("also"));
  EXPECT_EQ(preload_objection(folder.path("also/liba.so")), "");
  std::filesystem::create_symlink("loop.so", folder.path("safe/loop.so"));
  EXPECT_NE(preload_objection(folder.path("safe/loop.so")), "");
  // The file that the link leads to could be swapped, though nothing beside the link could.
  ASSERT_EQ(::chmod(folder.path("open").c_str(), 0777), 0);
  EXPECT_EQ(preload_objection(folder.path("safe/liba.so")), "'" + folder.path("open") + "' can be written by everybody");
  EXPECT_EQ(preload_objection(folder.path("also/liba.so")), "'" + folder.path("open") + "' can be written by everybody");
}

TEST(PreloadObjection, RefusesALinkOfSomebodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs the right to give files away";
  const TempFolder folder;
  folder.write("safe/liba.so", library_image());
  folder.write("shared/README", "");
  ASSERT_EQ(::chmod(folder.path("shared").c_str(), 01777), 0);
  std::filesystem::create_symlink(folder.path("safe/liba.so"), folder.path("shared/liba.so"));
  EXPECT_EQ(preload_objection(folder.path("shared/liba.so")), "");
  ASSERT_EQ(::lchown(folder.path("shared/liba.so").c_str(), 65534, 65534), 0);
  EXPECT_EQ(preload_objection(folder.path("shared/liba.so")), "'" + folder.path("shared/liba.so") + "' belongs to user 65534");
}

}  // namespace
}  // namespace ipexrun::launcher
