mkdir ~/shop
echo '# Shop' >~/shop/README.md
