"""What tests use of distrun's own code, by the package that has it; `top`: of none of them.

Tests take it from here. So a module that is split or a class that is renamed changes a line here
(`from distrun.job.folder import Folder as JobFolder`), and no test.
"""
