sacct -n -P -X $'--delimiter=\037' -j 1\,4\,5\,6\,7\,8\,9 -o JobID\,JobIDRaw\,State\,ExitCode\,Reason\,NNodes\,NodeList\,Start\,End\,Timelimit\,JobName 
